"""Schema, partition spec, partition values and metrics of the target, from those of the source.

Pure functions over Arrow columns. What Iceberg cannot represent or would read wrongly is refused.
"""
