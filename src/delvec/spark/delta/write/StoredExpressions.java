package delvec;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.CallMethodViaReflection;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.UnresolvedNamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.VariableReference;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction0;

/**
 * The expressions that a table has for its rows, parsed and looked through in one call from Python.
 * The parser is the one of Catalyst: unlike the session's it puts no variables or environment in
 * the place of ${...}. What is refused is refused before names and functions are resolved, so that
 * nothing of the session is looked up for it; the resolved tree is looked through again.
 */
public class StoredExpressions {
  private static final int KEPT = 100;
  private static final String EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions.";

  private final Set functions;
  private final Set bare;
  private final Set nodes;
  private final Map schemas;
  private final Map resolved;

  /**
   * All as names separated by blanks: the built-in functions that may be called, those of them that
   * SQL has without parentheses, and the simple names of the classes that stand for syntax.
   */
  public StoredExpressions(String functions, String bare, String nodes) {
    this.functions = words(functions);
    this.bare = words(bare);
    this.nodes = words(nodes);
    this.schemas = Collections.synchronizedMap(new HashMap());
    this.resolved = Collections.synchronizedMap(new HashMap());
  }

  private static Set words(String text) {
    return new HashSet(Arrays.asList(text.split(" ")));
  }

  /** Return the expression as a column, or as a string what is refused: its kind, and its name. */
  public Object column(
      final SparkSession session, final String text, final String schema, final String added) {
    return SQLConf.withExistingConf(
        session.sessionState().conf(),
        new AbstractFunction0() {
          public Object apply() {
            return checked(session, text, schema, words(added));
          }
        });
  }

  private Object checked(SparkSession session, String text, String schema, Set added) {
    StructType columns = (StructType) schemas.get(schema);
    if (columns == null) {
      columns = (StructType) DataType.fromJson(schema);
      keep(schemas, schema, columns);
    }
    Expression expression = CatalystSqlParser$.MODULE$.parseExpression(text);
    Column column = ExpressionUtils.column(expression);
    Set used = new HashSet();
    String refused = refusedSyntax(session, expression, columns, added, used);
    if (refused == null) {
      // What the owner of the session allows is no affair of ours, as long as rows stay rows.
      Object key = Arrays.asList(new Object[] {text, schema, used});
      if (!resolved.containsKey(key)) {
        LogicalPlan plan = analyzed(session, column, columns);
        refused = refusedPlan(plan, !used.isEmpty());
        if (refused == null) {
          keep(resolved, key, Boolean.TRUE);
        }
      }
    }
    return refused == null ? (Object) column : refused;
  }

  private static void keep(Map map, Object key, Object value) {
    if (map.size() >= KEPT) {
      map.clear();
    }
    map.put(key, value);
  }

  private String refusedSyntax(
      SparkSession session, Expression root, StructType columns, Set added, Set used) {
    boolean exact = SQLConf.get().caseSensitiveAnalysis();
    Set known = new HashSet();
    StructField[] fields = columns.fields();
    for (int i = 0; i < fields.length; i++) {
      known.add(exact ? fields[i].name() : lower(fields[i].name()));
    }
    List open = new ArrayList();
    open.add(new Object[] {root, known});
    while (!open.isEmpty()) {
      Object[] next = (Object[]) open.remove(open.size() - 1);
      Expression node = (Expression) next[0];
      Set scope = (Set) next[1];
      String refused = null;
      if (node instanceof UnresolvedFunction) {
        refused = refusedFunction(session, (UnresolvedFunction) node, added, used);
      } else if (node instanceof UnresolvedAttribute) {
        Seq parts = ((UnresolvedAttribute) node).nameParts();
        refused = refusedName(parts, known, exact, added);
      } else if (node instanceof UnresolvedNamedLambdaVariable) {
        Seq parts = ((UnresolvedNamedLambdaVariable) node).nameParts();
        refused = refusedName(parts, scope, exact, added);
      } else if (node instanceof LambdaFunction) {
        scope = new HashSet(scope);
        Iterator arguments = ((LambdaFunction) node).arguments().iterator();
        while (arguments.hasNext()) {
          String name = ((NamedExpression) arguments.next()).name();
          scope.add(exact ? name : lower(name));
        }
      } else if (!nodes.contains(nameOf(node))) {
        refused = "syntax " + nameOf(node);
      }
      if (refused != null) {
        return refused;
      }
      Iterator children = node.children().iterator();
      while (children.hasNext()) {
        open.add(new Object[] {children.next(), scope});
      }
    }
    return null;
  }

  private static String nameOf(Expression node) {
    String name = node.getClass().getName();
    return name.substring(name.lastIndexOf('.') + 1).split("\\$")[0];
  }

  private static String lower(String name) {
    return name.toLowerCase(Locale.ROOT);
  }

  private String refusedFunction(
      SparkSession session, UnresolvedFunction call, Set added, Set used) {
    String name = lower(call.nameParts().mkString("."));
    if (added.contains(name)) {
      used.add(name);
    } else if (call.nameParts().size() > 1 || !functions.contains(name)) {
      return "function " + name;
    } else if (!isBuiltIn(session, name)) {
      return "hidden " + name;
    }
    Object nulls = call.productElement(4); // ignoreNulls: an Option since Spark 4.2
    boolean plain =
        !call.isDistinct()
            && call.filter().isEmpty()
            && (nulls.equals(Boolean.FALSE) || nulls.equals(Option.empty()));
    return plain ? null : "syntax Aggregate";
  }

  /** Temporary functions of a session and those of extensions hide built-in ones of their name. */
  private static boolean isBuiltIn(SparkSession session, String name) {
    FunctionIdentifier identifier = new FunctionIdentifier(name);
    FunctionRegistry registry = session.sessionState().functionRegistry();
    Option own = registry.lookupFunctionBuilder(identifier);
    return own.isDefined()
        && own.get() == FunctionRegistry$.MODULE$.builtin().lookupFunctionBuilder(identifier).get();
  }

  /** The first part of a name is a column, or the argument of a lambda; else Spark would go on. */
  private String refusedName(Seq parts, Set scope, boolean exact, Set added) {
    String first = (String) parts.head();
    String name = lower(first);
    if (scope.contains(exact ? first : name)) {
      return null;
    }
    if (parts.size() == 1 && bare.contains(name)) {
      return functions.contains(name) || added.contains(name) ? null : "function " + name;
    }
    return "column " + parts.mkString(".");
  }

  /** Resolve an expression as a column of rows that have the columns of the table and no others. */
  private static LogicalPlan analyzed(SparkSession session, Column column, StructType columns) {
    Dataset rows = session.createDataFrame(Collections.emptyList(), columns);
    return rows.select(new Column[] {column}).queryExecution().analyzed();
  }

  /** Aggregates, window functions and generators make more of a projection: other rows. */
  private static String refusedPlan(LogicalPlan plan, boolean isOwners) {
    if (!(plan instanceof Project) || !(((Project) plan).child() instanceof LocalRelation)) {
      return "syntax Aggregate";
    }
    List open = new ArrayList();
    if (!isOwners) {
      open.add(((Project) plan).projectList().head());
    }
    while (!open.isEmpty()) {
      Expression node = (Expression) open.remove(open.size() - 1);
      if (!node.deterministic()
          || !node.getClass().getName().startsWith(EXPRESSIONS)
          || node instanceof PlanExpression
          || node instanceof UserDefinedExpression
          || node instanceof CallMethodViaReflection
          || node instanceof VariableReference) {
        return "syntax " + nameOf(node);
      }
      Iterator children = node.children().iterator();
      while (children.hasNext()) {
        open.add(children.next());
      }
    }
    return null;
  }
}
