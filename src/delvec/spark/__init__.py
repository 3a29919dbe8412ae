"""Work on a Spark session: here what both table formats share; imported only when needed."""
