package delvec.sql;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.V2TableWithV1Fallback;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A version of a Delta table, as Spark's analyzer sees it. The rules of the door replace every read
 * and write of it, so that it is never scanned or written by Spark's own means. A staged one is the
 * table of a CREATE or REPLACE ... AS SELECT, whose rows and definition become one commit.
 */
public class DeltaTable
    implements SupportsRead, SupportsWrite, StagedTable, TruncatableTable, V2TableWithV1Fallback {
  private final String name;
  private final StructType schema;
  private final Transform[] partitioning;
  private final Map properties;
  private final long key;
  CatalogTable registered;

  /** The key leads Python to the table. */
  public DeltaTable(
      String name, StructType schema, Transform[] partitioning, Map properties, Number key) {
    this.name = name;
    this.schema = schema;
    this.partitioning = partitioning;
    this.properties = properties;
    this.key = key.longValue();
  }

  public long key() {
    return key;
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public Transform[] partitioning() {
    return partitioning;
  }

  public Map properties() {
    return properties;
  }

  /** What DataStreamWriter.toTable looks for: it writes to the location of this. */
  public CatalogTable v1Table() {
    return registered;
  }

  public Set capabilities() {
    Set all = new HashSet();
    all.add(TableCapability.BATCH_READ);
    all.add(TableCapability.V1_BATCH_WRITE);
    all.add(TableCapability.TRUNCATE);
    all.add(TableCapability.OVERWRITE_BY_FILTER);
    all.add(TableCapability.OVERWRITE_DYNAMIC);
    all.add(TableCapability.ACCEPT_ANY_SCHEMA);
    return all;
  }

  /** DESCRIBE asks for the statistics of a scan; this one has none, and reads nothing. */
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new NoScan(schema());
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw new IllegalStateException("the write of " + name + " was not replaced");
  }

  public boolean truncateTable() {
    Link.ask("truncate", new Object[] {SparkSession.active(), this});
    return true;
  }

  public void commitStagedChanges() {
    Link.ask("commit staged", new Object[] {SparkSession.active(), this});
  }

  /** Spark 4.2 and later ask for it. */
  public CustomTaskMetric[] reportDriverMetrics() {
    return new CustomTaskMetric[0];
  }

  public void abortStagedChanges() {
    Link.ask("abort staged", new Object[] {SparkSession.active(), this});
  }

  public String toString() {
    return name;
  }

  public static class NoScan implements ScanBuilder, Scan {
    private final StructType schema;

    public NoScan(StructType schema) {
      this.schema = schema;
    }

    public Scan build() {
      return this;
    }

    public StructType readSchema() {
      return schema;
    }

    public Batch toBatch() {
      throw new UnsupportedOperationException(
          "this session does not know Delta tables: open it by delvec.enable_sql(spark)");
    }
  }
}
