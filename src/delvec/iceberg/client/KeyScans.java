package delvec;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.CloseableIterator;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.types.Comparators;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.util.JsonUtil;
import org.apache.iceberg.util.StructLikeWrapper;

/**
 * Reads chosen files of an Iceberg table through Iceberg's own reader for Spark, and writes files
 * through its writer without a commit. The classes live on the driver alone: what goes to
 * executors are Iceberg's own tasks and tables. (Janino compiles no lambdas and no generic casts.)
 */
public class KeyScans {
  private static final String SEPARATOR = "\0";
  private static final Set ORDERED =
      new HashSet(
          Arrays.asList(
              new Object[] {
                Type.TypeID.INTEGER,
                Type.TypeID.LONG,
                Type.TypeID.DATE,
                Type.TypeID.TIMESTAMP,
                Type.TypeID.STRING,
                Type.TypeID.DECIMAL
              }));

  /**
   * Plan the newest snapshot of main; return what is needed to apply equality deletes, separated by NUL characters:
   * the number of data files, the number of data files with equality deletes, and for each of these
   * path, data sequence number, scope and rows; then for each equality-delete file that applies to
   * any of them its sequence number, scope (-1 if global) and JSON object. A scope is a
   * number for a partition of a spec. Further equality deletes, JSON objects separated by NUL
   * characters, apply to data files of any sequence number. Before all that comes the path of a
   * data file that must be absent, if there is one.
   */
  public String plan(
      Table table, Expression filter, boolean caseSensitive, String further, String absent)
      throws Exception {
    Set unwanted = new HashSet(Arrays.asList(absent.split(SEPARATOR)));
    String present = "";
    BatchScan scan = (BatchScan) table.newBatchScan().caseSensitive(caseSensitive);
    Map scopes = new HashMap();
    Map byScope = new HashMap();
    List added = further.isEmpty() ? new ArrayList() : parsed(table, further);
    Set columns = new HashSet();
    for (int i = 0; i < added.size(); i++) {
      DeleteFile file = (DeleteFile) added.get(i);
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
      Integer scope = Integer.valueOf(spec.isUnpartitioned() ? -1 : scope(scopes, spec, file));
      List some = (List) byScope.get(scope);
      if (some == null) {
        some = new ArrayList();
        byScope.put(scope, some);
      }
      some.add(file);
      Iterator ids = file.equalityFieldIds().iterator();
      while (ids.hasNext()) {
        String name = table.schema().findColumnName(((Integer) ids.next()).intValue());
        if (name != null) {
          columns.add(name);
        }
      }
    }
    if (!columns.isEmpty()) {
      scan = (BatchScan) scan.includeColumnStats(columns);
    }
    if (filter != null) {
      scan = (BatchScan) scan.filter(filter);
    }
    Map deletes = new LinkedHashMap();
    StringBuilder files = new StringBuilder();
    long all = 0;
    long matched = 0;
    CloseableIterable tasks = scan.planFiles();
    CloseableIterator iterator = tasks.iterator();
    try {
      while (iterator.hasNext()) {
        FileScanTask task = (FileScanTask) iterator.next();
        all++;
        boolean hasKeys = false;
        Iterator each = task.deletes().iterator();
        while (each.hasNext()) {
          DeleteFile file = (DeleteFile) each.next();
          if (file.content() == FileContent.EQUALITY_DELETES) {
            hasKeys = true;
            deletes.put(file.location(), file);
          }
        }
        DataFile data = (DataFile) task.file();
        if (unwanted.contains(data.location())) {
          present = data.location();
        }
        if (!hasKeys && !added.isEmpty()) {
          Integer scope = Integer.valueOf(scope(scopes, task.spec(), data));
          hasKeys =
              mayHave(table.schema(), data, (List) byScope.get(Integer.valueOf(-1)))
                  || mayHave(table.schema(), data, (List) byScope.get(scope));
        }
        if (hasKeys) {
          matched++;
          append(files, data.location());
          append(files, String.valueOf(data.dataSequenceNumber()));
          append(files, String.valueOf(scope(scopes, task.spec(), data)));
          append(files, String.valueOf(data.recordCount()));
        }
      }
    } finally {
      iterator.close();
      tasks.close();
    }
    StringBuilder result = new StringBuilder();
    append(result, present);
    append(result, String.valueOf(all));
    append(result, String.valueOf(matched));
    result.append(files);
    Iterator each = deletes.values().iterator();
    while (each.hasNext()) {
      DeleteFile file = (DeleteFile) each.next();
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
      append(result, String.valueOf(file.dataSequenceNumber()));
      append(result, String.valueOf(spec.isUnpartitioned() ? -1 : scope(scopes, spec, file)));
      append(result, ContentFileParser.toJson(file, spec));
    }
    for (int i = 0; i < added.size(); i++) {
      DeleteFile file = (DeleteFile) added.get(i);
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
      append(result, String.valueOf(Long.MAX_VALUE));
      append(result, String.valueOf(spec.isUnpartitioned() ? -1 : scope(scopes, spec, file)));
      append(result, ContentFileParser.toJson(file, spec));
    }
    return result.toString();
  }

  private static List parsed(Table table, String files) throws Exception {
    String[] parts = files.split(SEPARATOR);
    List found = new ArrayList();
    for (int i = 0; i < parts.length; i++) {
      JsonNode node = JsonUtil.mapper().readTree(parts[i]);
      found.add(ContentFileParser.fromJson(node, table.specs()));
    }
    return found;
  }

  /** Whether a data file may have a key of one of some equality deletes: bounds tell. */
  private static boolean mayHave(Schema schema, DataFile data, List deletes) {
    if (deletes == null) {
      return false;
    }
    for (int i = 0; i < deletes.size(); i++) {
      DeleteFile delete = (DeleteFile) deletes.get(i);
      boolean possible = true;
      Iterator ids = delete.equalityFieldIds().iterator();
      while (possible && ids.hasNext()) {
        Integer id = (Integer) ids.next();
        possible = mayShare(schema.findType(id.intValue()), id, data, delete);
      }
      if (possible) {
        return true;
      }
    }
    return false;
  }

  private static boolean mayShare(Type type, Integer id, DataFile data, DeleteFile delete) {
    // Of other types bounds are not known to be in the order of equal values.
    if (type == null || !ORDERED.contains(type.typeId())) {
      return true;
    }
    if (mayBeNull(data, id) && mayBeNull(delete, id)) {
      return true;
    }
    Object low = bound(type, data.lowerBounds(), id);
    Object high = bound(type, data.upperBounds(), id);
    Object lowest = bound(type, delete.lowerBounds(), id);
    Object highest = bound(type, delete.upperBounds(), id);
    if (low == null || high == null || lowest == null || highest == null) {
      return true;
    }
    Comparator order = Comparators.forType(type.asPrimitiveType());
    return order.compare(low, highest) <= 0 && order.compare(lowest, high) <= 0;
  }

  private static boolean mayBeNull(org.apache.iceberg.ContentFile file, Integer id) {
    Map counts = file.nullValueCounts();
    Object count = counts == null ? null : counts.get(id);
    return count == null || ((Long) count).longValue() > 0;
  }

  private static Object bound(Type type, Map bounds, Integer id) {
    Object found = bounds == null ? null : bounds.get(id);
    return found == null ? null : Conversions.fromByteBuffer(type, (ByteBuffer) found);
  }

  /** The equality-delete files of a snapshot: data sequence number and JSON object of each. */
  public String equalityDeletes(Table table, long snapshotId) throws Exception {
    StringBuilder result = new StringBuilder();
    Iterator manifests = table.snapshot(snapshotId).deleteManifests(table.io()).iterator();
    while (manifests.hasNext()) {
      ManifestFile manifest = (ManifestFile) manifests.next();
      ManifestReader reader = ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
      CloseableIterator files = reader.iterator();
      try {
        while (files.hasNext()) {
          DeleteFile file = (DeleteFile) files.next();
          if (file.content() == FileContent.EQUALITY_DELETES) {
            PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
            append(result, String.valueOf(file.dataSequenceNumber()));
            append(result, ContentFileParser.toJson(file, spec));
          }
        }
      } finally {
        files.close();
        reader.close();
      }
    }
    return result.toString();
  }

  private static void append(StringBuilder to, String value) {
    to.append(value).append(SEPARATOR);
  }

  private static int scope(Map scopes, PartitionSpec spec, org.apache.iceberg.ContentFile file) {
    List key = new ArrayList();
    key.add(Integer.valueOf(spec.specId()));
    key.add(StructLikeWrapper.forType(spec.partitionType()).copyFor(file.partition()));
    Integer known = (Integer) scopes.get(key);
    if (known == null) {
      known = Integer.valueOf(scopes.size());
      scopes.put(key, known);
    }
    return known.intValue();
  }

  /**
   * A table that reads only some of its data files, or all others, and no equality deletes. Which
   * files have equality deletes depends on the condition, so it holds for the scan, too.
   */
  public Table reading(
      TableOperations operations,
      String name,
      String paths,
      boolean chosen,
      Expression condition) {
    Set wanted = new HashSet(Arrays.asList(paths.split(SEPARATOR)));
    return new ChosenFiles(operations, name, new ByPath(wanted, chosen, true), condition);
  }

  /** The same without any deletes: all rows that the files have. */
  public Table readingAll(TableOperations operations, String name, String paths, boolean chosen) {
    Set wanted = new HashSet(Arrays.asList(paths.split(SEPARATOR)));
    return new ChosenFiles(operations, name, new ByPath(wanted, chosen, false), null);
  }

  /** A table whose data files are delete files, given as path, format, size and row count each. */
  public Table readingKeys(TableOperations operations, String name, String files) {
    String[] parts = files.split(SEPARATOR);
    Schema schema = operations.current().schema();
    String schemaJson = SchemaParser.toJson(schema);
    PartitionSpec spec = PartitionSpec.unpartitioned();
    String specJson = PartitionSpecParser.toJson(spec);
    ResidualEvaluator all = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());
    List tasks = new ArrayList();
    for (int i = 0; i < parts.length; i += 4) {
      DataFile file =
          DataFiles.builder(spec)
              .withPath(parts[i])
              .withFormat(FileFormat.fromString(parts[i + 1]))
              .withFileSizeInBytes(Long.parseLong(parts[i + 2]))
              .withRecordCount(Long.parseLong(parts[i + 3]))
              .build();
      tasks.add(new BaseFileScanTask(file, new DeleteFile[0], schemaJson, specJson, all));
    }
    return new ChosenFiles(operations, name, new Given(tasks), null);
  }

  /** A table to which rows are appended without a commit; `written` has the files afterwards. */
  public Table writing(TableOperations operations, String name) {
    return new WrittenFiles(operations, name);
  }

  /** The JSON objects of the files that were written, separated by NUL characters. */
  public String written(Table table) {
    StringBuilder result = new StringBuilder();
    Iterator files = ((WrittenFiles) table).files.iterator();
    while (files.hasNext()) {
      DataFile file = (DataFile) files.next();
      PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
      append(result, ContentFileParser.toJson(file, spec));
    }
    return result.toString();
  }

  /** Which tasks a scan gets in place of those that it planned. */
  private interface Choice {
    List tasks(BatchScan scan) throws Exception;
  }

  private static class Given implements Choice {
    private final List given;

    Given(List given) {
      this.given = given;
    }

    public List tasks(BatchScan scan) {
      return given;
    }
  }

  private static class ByPath implements Choice {
    private final Set paths;
    private final boolean chosen;
    private final boolean withPositions;

    ByPath(Set paths, boolean chosen, boolean withPositions) {
      this.paths = paths;
      this.chosen = chosen;
      this.withPositions = withPositions;
    }

    public List tasks(BatchScan scan) throws Exception {
      Map specs = new HashMap();
      String schema = null;
      List found = new ArrayList();
      CloseableIterable tasks = scan.planFiles();
      CloseableIterator iterator = tasks.iterator();
      try {
        while (iterator.hasNext()) {
          FileScanTask task = (FileScanTask) iterator.next();
          if (paths.contains(((DataFile) task.file()).location()) != chosen) {
            continue;
          }
          List positions = new ArrayList();
          Iterator each = task.deletes().iterator();
          while (each.hasNext()) {
            DeleteFile file = (DeleteFile) each.next();
            if (withPositions && file.content() == FileContent.POSITION_DELETES) {
              positions.add(file);
            }
          }
          if (positions.size() == task.deletes().size()) {
            found.add(task);
            continue;
          }
          if (!chosen && withPositions) {
            throw new IllegalStateException(
                "equality deletes apply to a file that was planned to have none: "
                    + ((DataFile) task.file()).location());
          }
          Integer specId = Integer.valueOf(task.spec().specId());
          if (!specs.containsKey(specId)) {
            specs.put(specId, PartitionSpecParser.toJson(task.spec()));
          }
          if (schema == null) {
            schema = SchemaParser.toJson(task.schema());
          }
          DeleteFile[] kept = new DeleteFile[positions.size()];
          for (int i = 0; i < kept.length; i++) {
            kept[i] = (DeleteFile) positions.get(i);
          }
          ResidualEvaluator residual = ResidualEvaluator.unpartitioned(task.residual());
          DataFile data = (DataFile) task.file();
          found.add(
              new BaseFileScanTask(data, kept, schema, (String) specs.get(specId), residual));
        }
      } finally {
        iterator.close();
        tasks.close();
      }
      return found;
    }
  }

  private static class ChosenFiles extends BaseTable {
    private final Table whole;
    private final Choice choice;
    private final Expression condition;

    ChosenFiles(
        TableOperations operations, String name, Choice choice, Expression condition) {
      super(operations, name);
      this.whole = new BaseTable(operations, name);
      this.choice = choice;
      this.condition = condition;
    }

    public BatchScan newBatchScan() {
      BatchScan scan = whole.newBatchScan();
      if (condition != null) {
        scan = (BatchScan) scan.filter(condition);
      }
      return new ChosenScan(scan, choice).proxy();
    }

    public boolean allowDistributedPlanning() {
      return false;
    }
  }

  /** A scan with other tasks; a proxy, since versions of Iceberg differ in the methods of scans. */
  private static class ChosenScan implements InvocationHandler {
    private final BatchScan scan;
    private final Choice choice;

    ChosenScan(BatchScan scan, Choice choice) {
      this.scan = scan;
      this.choice = choice;
    }

    BatchScan proxy() {
      ClassLoader loader = BatchScan.class.getClassLoader();
      return (BatchScan) Proxy.newProxyInstance(loader, new Class[] {BatchScan.class}, this);
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.getName().equals("planFiles")) {
        return CloseableIterable.withNoopClose(choice.tasks(scan));
      }
      if (method.getName().equals("planTasks")) {
        throw new UnsupportedOperationException("tasks are planned by Spark");
      }
      Object result;
      try {
        result = method.invoke(scan, arguments);
      } catch (InvocationTargetException error) {
        throw error.getCause();
      }
      return result instanceof BatchScan
          ? new ChosenScan((BatchScan) result, choice).proxy()
          : result;
    }
  }

  private static class WrittenFiles extends BaseTable {
    final List files = new ArrayList();

    WrittenFiles(TableOperations operations, String name) {
      super(operations, name);
    }

    public AppendFiles newAppend() {
      return (AppendFiles)
          Proxy.newProxyInstance(
              AppendFiles.class.getClassLoader(),
              new Class[] {AppendFiles.class},
              new Append(files));
    }

    public AppendFiles newFastAppend() {
      return newAppend();
    }
  }

  /** Takes the files of an append, whatever else is asked of it. */
  private static class Append implements InvocationHandler {
    private final List files;

    Append(List files) {
      this.files = files;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) {
      if (method.getName().equals("appendFile")) {
        files.add(arguments[0]);
      }
      return method.getReturnType() == Void.TYPE ? null : proxy;
    }
  }
}
