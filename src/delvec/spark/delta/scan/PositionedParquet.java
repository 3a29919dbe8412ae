package delvec;

import java.io.Closeable;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.vectorized.OffHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.SerializableConfiguration;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Spark's Parquet reader with two columns more, filled batch by batch: the position of a row in its
 * file, and whether the file's vector, a constant column, has it. Spark's own row index, an
 * iterator of boxed numbers, takes some 15 ns a row, and a test of the bit in generated code as
 * much again.
 *
 * <p>Where all rows of a split are read in batches they are counted here. Where pushed filters let
 * Spark skip rows, and where it reads by rows, positions are Spark's, and the bit follows from
 * them. Executors have this class from a jar. (Janino compiles neither lambdas nor generic casts.)
 */
public class PositionedParquet extends ParquetFileFormat {
  private static final String POSITION = "_tmp_metadata_row_index"; // Spark fills it by its name
  private static final String ABSENT = "__delvec_absent_"; // read as nulls, and replaced
  private final String bit;
  private final String vector;

  public PositionedParquet(String bit, String vector) {
    this.bit = bit;
    this.vector = vector;
  }

  public Function1 buildReaderWithPartitionValues(
      SparkSession spark, StructType data, StructType constants, StructType required,
      Seq filters, Map options, Configuration conf) {
    int position = place(required, POSITION);
    int bits = place(required, bit);
    boolean batches = options.get("returning_batch").contains("true");
    boolean counts = batches && without(filters, true).isEmpty();
    if (bits < 0 && (position < 0 || !counts)) {
      return super.buildReaderWithPartitionValues(
          spark, data, constants, required, filters, options, conf);
    }
    StructType asked = required;
    Broadcast settings = null;
    if (counts) {
      asked = renamed(asked, position, ABSENT + "position");
      asked = renamed(asked, bits, ABSENT + "bit");
      settings = spark.sparkContext().broadcast(new SerializableConfiguration(conf),
          scala.reflect.ClassTag$.MODULE$.apply(SerializableConfiguration.class));
    } else {
      asked = renamed(asked, bits, position < 0 ? POSITION : ABSENT + "bit");
    }
    Function1 inner = super.buildReaderWithPartitionValues(
        spark, data, constants, asked, without(filters, counts), options, conf);
    int source = counts ? -1 : position < 0 ? bits : position;
    int constant = bits < 0 ? -1 : place(constants, vector);
    StructType row = new StructType((StructField[]) ArraySeq.unsafeWrapArray(required.fields())
        .appendedAll(ArraySeq.unsafeWrapArray(constants.fields()))
        .toArray(scala.reflect.ClassTag$.MODULE$.apply(StructField.class)));
    boolean offHeap = spark.sessionState().conf().offHeapColumnVectorEnabled();
    return new Reading(inner, settings, position, bits, source, constant, row, offHeap);
  }

  private static int place(StructType type, String name) {
    StructField[] fields = type.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].name().equals(name)) return i;
    }
    return -1;
  }

  private static StructType renamed(StructType type, int place, String name) {
    StructField[] fields = (StructField[]) type.fields().clone();
    if (place >= 0) {
      fields[place] = new StructField(name, DataTypes.LongType, true, Metadata.empty());
    }
    return new StructType(fields);
  }

  /** Return the filters that say something of what is stored, and that may skip rows. */
  private Seq without(Seq filters, boolean notNull) {
    Seq kept = (Seq) scala.collection.immutable.Nil$.MODULE$;
    Iterator each = filters.iterator();
    while (each.hasNext()) {
      Filter filter = (Filter) each.next();
      boolean ours = notNull && filter instanceof IsNotNull;
      String[] names = filter.references();
      for (int i = 0; i < names.length; i++) {
        ours = ours || names[i].equals(POSITION) || names[i].equals(bit);
      }
      if (!ours) kept = (Seq) kept.appended(filter);
    }
    return kept;
  }

  /** What tasks get: a function from a split to its rows. */
  public static class Reading extends scala.runtime.AbstractFunction1 implements Serializable {
    private final Function1 inner;
    private final Broadcast settings;
    private final int position;
    private final int bits;
    private final int source;
    private final int constant;
    private final StructType row;
    private final boolean offHeap;

    Reading(Function1 inner, Broadcast settings, int position, int bits, int source, int constant,
        StructType row, boolean offHeap) {
      this.inner = inner;
      this.settings = settings;
      this.position = position;
      this.bits = bits;
      this.source = source;
      this.constant = constant;
      this.row = row;
      this.offHeap = offHeap;
    }

    public Object apply(Object split) {
      PartitionedFile file = (PartitionedFile) split;
      long[] words = new long[0];
      if (constant >= 0) {
        if (file.partitionValues().isNullAt(constant)) {
          throw new IllegalStateException("delvec: a file came without its vector");
        }
        byte[] vector = file.partitionValues().getBinary(constant);
        words = new long[vector.length / 8];
        ByteBuffer.wrap(vector).asLongBuffer().get(words);
      }
      long[] groups = source < 0 ? groups(file) : null;
      return new Rows((Iterator) inner.apply(file), this, words, groups);
    }

    /**
     * Return the first position of each row group of a split, and the one after its last. A file
     * that is not split has one group: all of it; for others one footer is read.
     */
    private long[] groups(PartitionedFile file) {
      if (file.start() == 0 && file.length() >= file.fileSize()) {
        return new long[] {0, Long.MAX_VALUE};
      }
      Path path = file.toPath();
      Configuration conf = ((SerializableConfiguration) settings.value()).value();
      ParquetReadOptions options = HadoopReadOptions.builder(conf, path)
          .withRange(file.start(), file.start() + file.length()).build();
      try {
        ParquetFileReader reader =
            ParquetFileReader.open(HadoopInputFile.fromPath(path, conf), options);
        try {
          List found = reader.getRowGroups();
          long[] groups = new long[2 * found.size()];
          for (int i = 0; i < found.size(); i++) {
            BlockMetaData group = (BlockMetaData) found.get(i);
            groups[2 * i] = group.getRowIndexOffset();
            groups[2 * i + 1] = group.getRowIndexOffset() + group.getRowCount();
          }
          return groups;
        } finally {
          reader.close();
        }
      } catch (IOException error) {
        throw new java.io.UncheckedIOException(path.toString(), error);
      }
    }
  }

  /** The rows of a split. */
  public static class Rows extends scala.collection.AbstractIterator implements Closeable {
    private final Iterator inner;
    private final Reading how;
    private final long[] words;
    private final long[] groups;
    private final WritableColumnVector positions;
    private final WritableColumnVector bits;
    private int group = 0;
    private long at;
    private ColumnarBatch read;
    private ColumnarBatch made;
    private UnsafeProjection projection;

    Rows(Iterator inner, Reading how, long[] words, long[] groups) {
      this.inner = inner;
      this.how = how;
      this.words = words;
      this.groups = groups;
      this.at = groups == null || groups.length == 0 ? 0 : groups[0];
      this.positions = how.source < 0 && how.position >= 0 ? column() : null;
      this.bits = how.bits >= 0 ? column() : null;
    }

    private WritableColumnVector column() {
      return how.offHeap
          ? (WritableColumnVector) new OffHeapColumnVector(4096, DataTypes.LongType)
          : (WritableColumnVector) new OnHeapColumnVector(4096, DataTypes.LongType);
    }

    public boolean hasNext() {
      return inner.hasNext();
    }

    public Object next() {
      Object each = inner.next();
      return each instanceof ColumnarBatch ? filled((ColumnarBatch) each) : filled((InternalRow) each);
    }

    private Object filled(ColumnarBatch batch) {
      int rows = batch.numRows();
      long first = how.source < 0 ? passed(rows) : 0;
      if (positions != null) {
        positions.reset();
        positions.reserve(rows);
        for (int i = 0; i < rows; i++) positions.putLong(i, first + i);
      }
      if (bits != null) {
        bits.reset();
        bits.reserve(rows);
        if (how.source >= 0) {
          ColumnVector found = batch.column(how.source);
          for (int i = 0; i < rows; i++) bits.putLong(i, bit(found.getLong(i)));
        } else if (first >>> 6 >= words.length) {
          bits.putLongs(0, rows, 0L);
        } else {
          for (int i = 0; i < rows; i++) bits.putLong(i, bit(first + i));
        }
      }
      if (batch != read) { // Spark's reader returns one batch again and again
        ColumnVector[] columns = new ColumnVector[batch.numCols()];
        for (int i = 0; i < columns.length; i++) {
          columns[i] = i == how.bits ? bits
              : positions != null && i == how.position ? positions : batch.column(i);
        }
        made = new ColumnarBatch(columns);
        read = batch;
      }
      made.setNumRows(rows);
      return made;
    }

    private Object filled(InternalRow found) {
      if (projection == null) projection = UnsafeProjection.create(how.row);
      UnsafeRow row = found instanceof UnsafeRow ? (UnsafeRow) found : projection.apply(found);
      row.setLong(how.bits, bit(row.getLong(how.source)));
      return row;
    }

    private long bit(long position) {
      long word = position >>> 6;
      return word < words.length ? words[(int) word] >>> (position & 63) & 1L : 0L;
    }

    /** Return the position of the first of some rows; a batch has rows of one group. */
    private long passed(int rows) {
      while (group + 2 < groups.length && at == groups[group + 1]) {
        group += 2;
        at = groups[group];
      }
      if (group >= groups.length || rows > groups[group + 1] - at) {
        throw new IllegalStateException(
            "delvec: a file has more rows than the row groups in its footer");
      }
      long first = at;
      at += rows;
      return first;
    }

    public void close() throws IOException {
      if (positions != null) positions.close();
      if (bits != null) bits.close();
      if (inner instanceof Closeable) ((Closeable) inner).close();
    }
  }
}
