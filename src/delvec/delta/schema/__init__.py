"""What a table declares: types, protocol and features, metadata, properties, expressions."""
