package delvec.sql;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction2;

/**
 * Spark's parser with the statements that Spark has no grammar for, given to
 * SparkSessionExtensions.injectParser. A proxy, since the methods of ParserInterface differ from
 * Spark 4.0 to 4.3. Python is asked for statements only that begin with words of Delta's.
 */
public class Parser extends AbstractFunction2 {
  private static final Set ALWAYS =
      new HashSet(
          Arrays.asList(
              new Object[] {
                "OPTIMIZE", "REORG", "VACUUM", "RESTORE", "CONVERT", "GENERATE", "CHECK", "TRACES",
                "RESOLVE"
              }));

  private static final Set MODES =
      new HashSet(Arrays.asList(new Object[] {"EXTENDED", "CODEGEN", "COST", "FORMATTED"}));

  public Object apply(Object session, Object parser) {
    try {
      ClassLoader loader = parser.getClass().getClassLoader();
      Class type =
          Class.forName("org.apache.spark.sql.catalyst.parser.ParserInterface", true, loader);
      Handler handler = new Handler((SparkSession) session, parser);
      return Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, handler);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e.getMessage());
    }
  }

  public static class Handler implements InvocationHandler {
    private final SparkSession session;
    private final Object parser;

    public Handler(SparkSession session, Object parser) {
      this.session = session;
      this.parser = parser;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.getName().startsWith("parsePlan") && mayBeOurs((String) arguments[0])) {
        String catalog = session.sessionState().conf().getConfString(Rules.CATALOG, "");
        if (catalog.equals("delvec.sql.DeltaCatalog")) {
          Object plan = Link.ask("parse", new Object[] {session, arguments[0]});
          if (plan != null) {
            return plan;
          }
        }
      }
      try {
        return method.invoke(parser, arguments);
      } catch (InvocationTargetException e) {
        throw e.getCause();
      }
    }
  }

  /** Whether a statement begins as one of ours; the grammar in Python decides. */
  static boolean mayBeOurs(String text) {
    int start = skipped(text, 0);
    String first = word(text, start);
    if (ALWAYS.contains(first)) {
      return true;
    }
    if (first.equals("EXPLAIN")) {
      int next = skipped(text, start + first.length());
      String mode = word(text, next);
      return mayBeOurs(text.substring(MODES.contains(mode) ? next + mode.length() : next));
    }
    if (first.equals("DESCRIBE") || first.equals("DESC")) {
      String second = word(text, skipped(text, start + first.length()));
      return second.equals("HISTORY") || second.equals("DETAIL");
    }
    if (first.equals("ALTER") || first.equals("CREATE") || first.equals("REPLACE")) {
      String upper = text.toUpperCase(Locale.ROOT);
      return first.equals("ALTER")
          ? upper.contains("CONSTRAINT") || upper.contains("FEATURE")
          : upper.contains("CLONE");
    }
    return false;
  }

  /** The first place behind blanks and comments. */
  private static int skipped(String text, int start) {
    int i = start;
    int n = text.length();
    while (i < n) {
      if (Character.isWhitespace(text.charAt(i))) {
        i++;
      } else if (text.startsWith("--", i)) {
        int end = text.indexOf('\n', i);
        i = end < 0 ? n : end + 1;
      } else if (text.startsWith("/*", i)) {
        int end = text.indexOf("*/", i + 2);
        i = end < 0 ? n : end + 2;
      } else {
        return i;
      }
    }
    return n;
  }

  private static String word(String text, int start) {
    int end = start;
    while (end < text.length() && Character.isLetter(text.charAt(end))) {
      end++;
    }
    return text.substring(start, end).toUpperCase(Locale.ROOT);
  }
}
