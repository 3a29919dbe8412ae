"""Where rows that satisfy a condition physically are, and when they will be gone."""
