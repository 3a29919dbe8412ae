package delvec.sql;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

/** The name `delta` in `format("delta")` and `USING delta`, for reading, writing and streams. */
public class DeltaSource
    implements DataSourceRegister, TableProvider, CreatableRelationProvider, StreamSinkProvider {
  public String shortName() {
    return "delta";
  }

  /** Nothing is opened yet: a writer asks for the table before there is one. */
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
    return new Transform[0];
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new ByOptions(properties);
  }

  /** Spark would pass a schema of the user's, which Delta does not take. */
  public boolean supportsExternalMetadata() {
    return false;
  }

  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map options, Dataset rows) {
    StructType schema =
        (StructType)
            Link.ask("save", new Object[] {rows.sparkSession(), mode.toString(), options, rows});
    return new Written(context, schema);
  }

  public Sink createSink(
      SQLContext context,
      scala.collection.immutable.Map options,
      Seq partitionColumns,
      OutputMode mode) {
    return new StreamSink(options, partitionColumns, mode.toString());
  }

  /** The table of a reader's options, opened when somebody looks at it. */
  public static class ByOptions extends DeltaTable {
    private final Map options;
    private DeltaTable found;

    public ByOptions(Map options) {
      super(null, null, null, null, Long.valueOf(0));
      this.options = options;
    }

    private synchronized DeltaTable found() {
      if (found == null) {
        found = (DeltaTable) Link.ask("open", new Object[] {SparkSession.active(), options});
      }
      return found;
    }

    public long key() {
      return found().key();
    }

    public String name() {
      return found().name();
    }

    public StructType schema() {
      return found().schema();
    }

    public Transform[] partitioning() {
      return found().partitioning();
    }

    public Map properties() {
      return found().properties();
    }
  }

  /** What Spark gets back of a write; nobody reads it. */
  public static class Written extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    public Written(SQLContext context, StructType schema) {
      this.context = context;
      this.schema = schema;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }
  }

  public static class StreamSink implements Sink {
    private final scala.collection.immutable.Map options;
    private final Seq partitionColumns;
    private final String mode;

    public StreamSink(scala.collection.immutable.Map options, Seq partitionColumns, String mode) {
      this.options = options;
      this.partitionColumns = partitionColumns;
      this.mode = mode;
    }

    /** The rows of a batch belong to the query that is running: as plain rows they can be written. */
    public void addBatch(long number, Dataset rows) {
      org.apache.spark.sql.classic.Dataset batch = (org.apache.spark.sql.classic.Dataset) rows;
      Object plain =
          batch
              .sparkSession()
              .internalCreateDataFrame(batch.queryExecution().toRdd(), batch.schema(), false);
      String query = batch.sparkSession().sparkContext().getLocalProperty("sql.streaming.queryId");
      Object[] asked = {
        batch.sparkSession(), options, partitionColumns, mode, query, Long.valueOf(number), plain
      };
      Link.ask("batch", asked);
    }

    public String name() {
      return "delta";
    }

    public StructType schema() {
      return new StructType();
    }

    public java.util.Set capabilities() {
      return new java.util.HashSet();
    }

    public String toString() {
      return "delta";
    }
  }
}
