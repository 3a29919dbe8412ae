package delvec.sql;

import org.apache.spark.sql.catalyst.expressions.AttributeMap$;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** A statement that Python carries out when Spark runs it; EXPLAIN shows it, and runs nothing. */
public class Statement extends LogicalPlan implements LeafRunnableCommand {
  private final String title;
  private final Seq output;
  private final Long key;
  private Seq patterns = Nil$.MODULE$;

  /** The key leads Python to what is to be done; nothing here may be an object of Python. */
  public Statement(String title, Seq output, Number key) {
    this.title = title;
    this.output = output;
    this.key = Long.valueOf(key.longValue());
  }

  public Seq run(org.apache.spark.sql.SparkSession session) {
    return (Seq) Link.ask("run", new Object[] {session, key});
  }

  public Seq run(org.apache.spark.sql.classic.SparkSession session) {
    return run((org.apache.spark.sql.SparkSession) session);
  }

  public Seq output() {
    return output;
  }

  public Seq children() {
    return Nil$.MODULE$;
  }

  public Map metrics() {
    return Map$.MODULE$.empty();
  }

  public AttributeSet producedAttributes() {
    return outputSet();
  }

  public Seq nodePatterns() {
    return patterns;
  }

  public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(Seq s) {
    this.patterns = s;
  }

  public TreeNode mapChildren(Function1 f) {
    return this;
  }

  public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq children) {
    return this;
  }

  /** All arguments of the constructor, in their order: Spark copies nodes by them. */
  public Object productElement(int i) {
    return i == 0 ? title : i == 1 ? output : (Object) key;
  }

  public int productArity() {
    return 3;
  }

  public boolean canEqual(Object other) {
    return other == this;
  }

  public String nodeName() {
    return title;
  }

  public String simpleString(int maxFields) {
    return title;
  }

  public Statistics stats() {
    return new Statistics(
        scala.math.BigInt$.MODULE$.apply(1),
        scala.Option.empty(),
        AttributeMap$.MODULE$.empty(),
        false);
  }
}
