"""`delvec.sql`: statements that Spark would refuse, carried out."""
