package delvec.sql;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;

/** The statements that Spark has no grammar for: Python is asked for words of Delta's only. */
public class Parser {
  private static final Set ALWAYS =
      new HashSet(
          Arrays.asList(
              new Object[] {
                "OPTIMIZE", "REORG", "VACUUM", "RESTORE", "CONVERT", "GENERATE", "CHECK", "TRACES",
                "RESOLVE"
              }));

  private static final Set MODES =
      new HashSet(Arrays.asList(new Object[] {"EXTENDED", "CODEGEN", "COST", "FORMATTED"}));

  private Parser() {}

  /** The plan of a statement that is ours; null for Spark's. */
  public static LogicalPlan ours(SparkSession session, String text) {
    if (!mayBeOurs(text)) {
      return null;
    }
    String catalog = session.sessionState().conf().getConfString(Rules.CATALOG, "");
    boolean open = catalog.equals("delvec.sql.DeltaCatalog");
    return open ? (LogicalPlan) Link.ask("parse", new Object[] {session, text}) : null;
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
