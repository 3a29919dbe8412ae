package delvec.sql;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.connector.catalog.CatalogExtension;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's session catalog, in which tables whose provider is delta are tables of the door. */
public class DeltaCatalog extends DelegatingCatalogExtension implements StagingTableCatalog {
  public Set capabilities() {
    Set all = new HashSet(super.capabilities());
    all.add(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    all.add(TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS);
    all.add(TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS);
    return all;
  }

  public Table loadTable(Identifier name) throws NoSuchTableException {
    return load(name, null, null);
  }

  public Table loadTable(Identifier name, String version) throws NoSuchTableException {
    return load(name, version, null);
  }

  public Table loadTable(Identifier name, long timestamp) throws NoSuchTableException {
    return load(name, null, Long.valueOf(timestamp));
  }

  private Table load(Identifier name, String version, Long timestamp) throws NoSuchTableException {
    String location = pathOf(name);
    CatalogTable registered = null;
    if (location == null) {
      Table found = super.loadTable(name);
      registered = deltaTable(found);
      if (registered == null) {
        if (version != null) {
          return super.loadTable(name, version);
        }
        return timestamp == null ? found : super.loadTable(name, timestamp.longValue());
      }
      location = CatalogUtils.URIToString(registered.location());
    }
    Object[] asked = {session(), title(name), location, version, timestamp, registered};
    DeltaTable table = (DeltaTable) Link.ask("load", asked);
    if (table == null) {
      throw new NoSuchTableException(name);
    }
    table.registered = registered;
    return table;
  }

  public boolean tableExists(Identifier name) {
    String path = pathOf(name);
    if (path == null) {
      return super.tableExists(name);
    }
    return ((Boolean) Link.ask("exists", new Object[] {session(), path})).booleanValue();
  }

  public Table createTable(
      Identifier name, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isDelta(name, properties)) {
      return super.createTable(name, columns, partitions, properties);
    }
    stage("create", name, columns, partitions, properties).commitStagedChanges();
    return null;
  }

  public StagedTable stageCreate(
      Identifier name, Column[] columns, Transform[] partitions, Map properties) {
    return stage("create", name, columns, partitions, properties);
  }

  public StagedTable stageReplace(
      Identifier name, Column[] columns, Transform[] partitions, Map properties) {
    return stage("replace", name, columns, partitions, properties);
  }

  public StagedTable stageCreateOrReplace(
      Identifier name, Column[] columns, Transform[] partitions, Map properties) {
    return stage("create or replace", name, columns, partitions, properties);
  }

  private StagedTable stage(
      String how, Identifier name, Column[] columns, Transform[] partitions, Map properties) {
    if (!isDelta(name, properties)) {
      throw new UnsupportedOperationException(
          "delvec cannot stage " + title(name) + ", whose provider is not delta");
    }
    Object[] asked = {
      session(), how, name, title(name), pathOf(name), columns, partitions, properties,
      Boolean.valueOf(isOverwriteOfWriter())
    };
    return (StagedTable) Link.ask("stage", asked);
  }

  public Table alterTable(Identifier name, TableChange[] changes) throws NoSuchTableException {
    Table table = load(name, null, null);
    if (!(table instanceof DeltaTable)) {
      return super.alterTable(name, changes);
    }
    Object isOfCatalog = Link.ask("alter", new Object[] {session(), table, changes});
    if (((Boolean) isOfCatalog).booleanValue()) {
      super.alterTable(name, changes);
    }
    return load(name, null, null);
  }

  /** The path of a name such as delta.`/lake/orders`; null for a name of the catalog. */
  public static String pathOf(Identifier name) {
    String[] namespace = name.namespace();
    boolean named =
        namespace.length == 1
            && (namespace[0].equalsIgnoreCase("delta") || namespace[0].equalsIgnoreCase("delvec"));
    return named && isAbsolute(name.name()) ? name.name() : null;
  }

  private static boolean isAbsolute(String path) {
    try {
      return new Path(path).isAbsolute();
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  private static CatalogTable deltaTable(Table table) {
    if (!(table instanceof V1Table)) {
      return null;
    }
    CatalogTable found = ((V1Table) table).v1Table();
    boolean isDelta =
        found.provider().isDefined() && "delta".equalsIgnoreCase((String) found.provider().get());
    return isDelta ? found : null;
  }

  private static boolean isDelta(Identifier name, Map properties) {
    Object provider = properties.get("provider");
    return pathOf(name) != null || "delta".equalsIgnoreCase((String) provider);
  }

  /** DataFrameWriter.saveAsTable(mode overwrite) has the plan of CREATE OR REPLACE ... AS SELECT. */
  private static boolean isOverwriteOfWriter() {
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    for (int i = 0; i < stack.length; i++) {
      if (stack[i].getMethodName().equals("saveAsTable")
          && stack[i].getClassName().endsWith(".DataFrameWriter")) {
        return true;
      }
    }
    return false;
  }

  private String title(Identifier name) {
    StringBuilder title = new StringBuilder();
    String[] namespace = name.namespace();
    for (int i = 0; i < namespace.length; i++) {
      title.append(namespace[i]).append('.');
    }
    return title.append(pathOf(name) == null ? name.name() : "`" + name.name() + "`").toString();
  }

  private static Object session() {
    return SparkSession.active();
  }
}
