import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's own REST catalog on loopback, in front of a catalog in SQLite, that fails on demand.
 *
 * <p>The argument is the folder for both; the port is printed. A line of words on standard input says
 * what becomes of the next commits to tables: of each word {@code lost} the commit happens and the
 * answer is lost, of {@code never} it does not happen and nobody says so, of {@code done} all is
 * well. The line is repeated when it is known. The server ends with its standard input.
 */
public class RestServer {
  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // libraries may print what they like
    ConcurrentLinkedDeque<String> faults = new ConcurrentLinkedDeque<>();
    Map<String, String> properties =
        Map.of(
            "type", "jdbc",
            "uri", "jdbc:sqlite:file:" + arguments[0] + "/catalog.db",
            "jdbc.schema-version", "V1",
            "warehouse", arguments[0]);
    var catalog = CatalogUtil.buildIcebergCatalog("server", properties, new Configuration());
    Filter filter =
        (request, response, chain) -> {
          HttpServletRequest asked = (HttpServletRequest) request;
          boolean isCommit =
              asked.getMethod().equals("POST") && asked.getRequestURI().matches(".*/tables/[^/]+");
          String fault = isCommit && !faults.isEmpty() ? faults.poll() : "done";
          if (!fault.equals("never")) {
            chain.doFilter(request, response);
          }
          if (!fault.equals("done")) {
            response.reset();
            ((HttpServletResponse) response).setStatus(504);
          }
        };
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    context.addFilter(new FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST));
    Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    server.setHandler(context);
    server.start();
    answers.println(server.getURI().getPort());
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      faults.clear();
      faults.addAll(List.of(line.split(" ")));
      answers.println(line);
    }
    System.exit(0);
  }
}
