"""Where rows with deleted keys are: by a join with the data files, or by a primary-key index."""
