package delvec.sql;

import java.util.function.BiFunction;
import org.apache.spark.unsafe.Platform;

/** What asks Python. Errors come back as exceptions that Python made, and are thrown here. */
public final class Link {
  private static volatile BiFunction python;

  private Link() {}

  /** Set the function of Python: it gets the name of a question and its arguments. */
  public static void to(BiFunction function) {
    python = function;
  }

  public static Object ask(String question, Object[] arguments) {
    Object answer = python.apply(question, arguments);
    if (answer instanceof Throwable) {
      ((Throwable) answer).setStackTrace(new StackTraceElement[0]);
      Platform.throwException((Throwable) answer);
    }
    return answer;
  }
}
