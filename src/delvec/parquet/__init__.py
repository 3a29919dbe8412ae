"""Bytes of Parquet footers: Thrift's compact protocol, and the field ids of a schema.

For changes that Arrow and Spark cannot make. No I/O: functions take bytes, or a function
`read(start, length)`.
"""
