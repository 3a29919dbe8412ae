"""The site: pages of docs/, and those that are generated from the code."""
