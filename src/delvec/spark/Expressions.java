package delvec;

import java.util.ArrayList;
import java.util.List;
import net.razorvine.pickle.Pickler;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Expressions of Spark for Python, a whole tree in one call: a node by a call of its own takes a
 * millisecond. (Janino compiles neither lambdas nor generic casts.) See catalyst.py for what a node
 * is.
 */
public class Expressions {
  private static final int DEEPEST = 200; // Python's stack has some thousand frames

  public Expressions() {}

  public byte[] read(Expression root) throws Exception {
    return new Pickler().dumps(node(root, new ArrayList(), 0));
  }

  /** Return the SQL of a node, by its number in the order in which `read` comes to nodes. */
  public String shown(Expression root, int number) {
    List seen = new ArrayList();
    node(root, seen, 0);
    return ((Expression) seen.get(number)).sql();
  }

  private static Object[] node(Expression of, List seen, int depth) {
    int number = seen.size();
    seen.add(of);
    String kind = of.getClass().getSimpleName();
    String type = null;
    String name = null;
    Object value = null;
    List children = new ArrayList();
    boolean isReadable = depth < DEEPEST;
    try {
      type = of.resolved() ? of.dataType().catalogString() : null;
    } catch (RuntimeException error) {
      isReadable = false; // an expression of others: no query fails for want of pruning
    }
    if (!isReadable) {
      kind = "Opaque";
    } else if (of instanceof Literal) {
      try {
        value = plain(((Literal) of).value(), of.dataType());
      } catch (IllegalArgumentException error) {
        kind = "Opaque";
      }
    } else if (isConstant(of)) {
      try {
        value = plain(of.eval(null), of.dataType());
        kind = "Literal";
      } catch (Exception error) {
        kind = "Opaque"; // such as 1 / 0, which fails when the query runs, if it comes to that
      }
    } else if (of instanceof And || of instanceof Or) {
      operands(of, of.getClass(), children);
    } else if (of instanceof In) {
      kind = "In";
      children.add(((In) of).value());
      value = constants(((In) of).list().iterator(), children);
    } else if (of instanceof InSet) {
      kind = "In";
      children.add(((InSet) of).child());
      value = members((InSet) of);
    } else {
      if (of instanceof AttributeReference) {
        name = ((AttributeReference) of).name();
        value = Long.valueOf(((AttributeReference) of).exprId().id());
      } else if (of instanceof GetStructField) {
        GetStructField field = (GetStructField) of;
        name = ((StructType) field.child().dataType()).fieldNames()[field.ordinal()];
      }
      scala.collection.Iterator below = of.children().iterator();
      while (below.hasNext()) {
        children.add(below.next());
      }
    }
    Object[] nodes = new Object[children.size()];
    for (int i = 0; i < nodes.length; i++) {
      nodes[i] = node((Expression) children.get(i), seen, depth + 1);
    }
    return new Object[] {kind, type, name, value, nodes, Integer.valueOf(number)};
  }

  /** Add all operands of a chain of AND or OR, which is as deep as it is long. */
  private static void operands(Expression chain, Class kind, List found) {
    List waiting = new ArrayList();
    waiting.add(chain);
    while (!waiting.isEmpty()) {
      Expression each = (Expression) waiting.remove(waiting.size() - 1);
      if (each.getClass() == kind && !isConstant(each)) {
        waiting.add(each.children().apply(1));
        waiting.add(each.children().apply(0));
      } else {
        found.add(each);
      }
    }
  }

  /** Whether all leaves are literals; the current time is not, which Spark fixes later. */
  private static boolean isConstant(Expression of) {
    if (!of.resolved() || !of.foldable()) {
      return false;
    }
    scala.collection.Iterator leaves = of.collectLeaves().iterator();
    while (leaves.hasNext()) {
      if (!(leaves.next() instanceof Literal)) {
        return false;
      }
    }
    return true;
  }

  /** Return the values of a list, or null and add those that are no constants to the children. */
  private static Object constants(scala.collection.Iterator list, List children) {
    List values = new ArrayList();
    int before = children.size();
    while (list.hasNext()) {
      Expression each = (Expression) list.next();
      Object[] found = node(each, new ArrayList(), 0);
      if (found[0].equals("Literal")) {
        values.add(found[3]);
      } else {
        children.add(each);
      }
    }
    return children.size() == before ? values : null;
  }

  private static Object members(InSet of) {
    List values = new ArrayList();
    DataType type = of.child().dataType();
    scala.collection.Iterator members = of.hset().iterator();
    try {
      while (members.hasNext()) {
        values.add(plain(members.next(), type));
      }
    } catch (IllegalArgumentException error) {
      return null;
    }
    return values;
  }

  /** Return a value of Spark in a form that Python has: a struct as a tuple, times as numbers. */
  private static Object plain(Object value, DataType type) {
    if (value instanceof UTF8String) {
      return value.toString();
    } else if (value instanceof Decimal) {
      return ((Decimal) value).toJavaBigDecimal();
    } else if (value instanceof InternalRow && type instanceof StructType) {
      StructType struct = (StructType) type;
      Object[] cells = new Object[struct.length()];
      for (int i = 0; i < cells.length; i++) {
        DataType inner = struct.fields()[i].dataType();
        cells[i] = plain(((InternalRow) value).get(i, inner), inner);
      }
      return cells;
    } else if (value == null || value instanceof Boolean || value instanceof Number
        || value instanceof byte[]) {
      return value;
    }
    throw new IllegalArgumentException("Python has no such value");
  }
}
