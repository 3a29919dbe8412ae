package delvec.sql;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * The analyzer rules of a session, given to SparkSessionExtensions. The early one takes statements
 * that change rows, whose expressions nobody has resolved yet; the late one replaces reads of the
 * tables that DeltaCatalog and DeltaSource have loaded, and writes of resolved rows to them. A
 * session whose catalog is another sees neither.
 */
public class Rules extends AbstractFunction1 {
  public static final String CATALOG = "spark.sql.catalog.spark_catalog";
  /** What marks the rows of a whole table, so that a view of them is known to show it. */
  public static final TreeNodeTag TABLE = new TreeNodeTag("delvec.table");

  private final boolean early;

  public Rules(Boolean early) {
    this.early = early.booleanValue();
  }

  public Object apply(Object session) {
    return new Replacing((SparkSession) session, early);
  }

  public static class Replacing extends Rule {
    private final SparkSession session;
    private final boolean early;
    private final Replace replace;

    public Replacing(SparkSession session, boolean early) {
      this.session = session;
      this.early = early;
      this.replace = early ? (Replace) new Early(session) : new Late(session);
    }

    public String ruleName() {
      return "delvec.sql.Rules." + (early ? "Early" : "Late");
    }

    public TreeNode apply(TreeNode plan) {
      String catalog = session.sessionState().conf().getConfString(CATALOG, "");
      if (!catalog.equals("delvec.sql.DeltaCatalog")) {
        return plan;
      }
      return ((LogicalPlan) plan).resolveOperatorsDown(replace);
    }
  }

  /** A partial function that replaces the nodes for which it finds something else. */
  public abstract static class Replace extends AbstractPartialFunction {
    final SparkSession session;

    Replace(SparkSession session) {
      this.session = session;
    }

    abstract Object found(Object plan);

    public boolean isDefinedAt(Object plan) {
      return true;
    }

    public Object applyOrElse(Object plan, Function1 other) {
      Object found = found(plan);
      return found == null ? other.apply(plan) : found;
    }
  }

  public static class Early extends Replace {
    Early(SparkSession session) {
      super(session);
    }

    Object found(Object plan) {
      String kind = plan.getClass().getSimpleName();
      if (kind.equals("DeleteFromTable")
          || kind.equals("UpdateTable")
          || kind.equals("MergeIntoTable")
          || kind.equals("CreateTableLikeCommand")
          || kind.equals("ShowPartitions")
          || kind.equals("UnresolvedTableValuedFunction")
              && plan.toString().toLowerCase().contains("table_changes")
          || kind.equals("UnresolvedRelation")
              && (((UnresolvedRelation) plan).isStreaming()
                  || ((UnresolvedRelation) plan).options().containsKey("readChangeFeed"))
          || kind.equals("UnresolvedDataSource")
              && ((UnresolvedDataSource) plan)
                  .format()
                  .equalsIgnoreCase(((UnresolvedDataSource) plan).isStreaming() ? "delta" : "delvec")) {
        return Link.ask("early", new Object[] {session, kind, plan});
      }
      return null;
    }
  }

  public static class Late extends Replace {
    Late(SparkSession session) {
      super(session);
    }

    Object found(Object plan) {
      if (plan instanceof DataSourceV2Relation) {
        DataSourceV2Relation relation = (DataSourceV2Relation) plan;
        if (relation.table() instanceof DeltaTable) {
          Object[] asked = {session, relation.table(), relation.options().asCaseSensitiveMap()};
          LogicalPlan rows =
              withOutput((LogicalPlan) Link.ask("read", asked), relation.output());
          rows.setTagValue(TABLE, relation.table());
          return rows;
        }
      } else if (plan instanceof V2WriteCommand) {
        V2WriteCommand write = (V2WriteCommand) plan;
        if (write.query().resolved() && write.table() instanceof DataSourceV2Relation) {
          Object table = ((DataSourceV2Relation) write.table()).table();
          if (table instanceof DeltaTable) {
            String kind = plan.getClass().getSimpleName();
            return Link.ask("write", new Object[] {session, kind, plan, table, write.query()});
          }
        }
      }
      return null;
    }
  }

  /** The rows under attributes that other nodes of the plan refer to by their ids already. */
  private static LogicalPlan withOutput(LogicalPlan rows, Seq output) {
    Object[] columns = new Object[output.size()];
    for (int i = 0; i < columns.length; i++) {
      Attribute wanted = (Attribute) output.apply(i);
      Attribute given = (Attribute) rows.output().apply(i);
      columns[i] =
          new Alias(
              given,
              wanted.name(),
              wanted.exprId(),
              wanted.qualifier(),
              Option.apply(wanted.metadata()),
              ArraySeq.unsafeWrapArray(new Object[0]));
    }
    return new Project(ArraySeq.unsafeWrapArray(columns), rows);
  }
}
