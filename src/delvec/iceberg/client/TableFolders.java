package delvec;

import java.io.FileNotFoundException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsPrefixOperations;

/**
 * Looks into folders by the FileIO of a table. Of a million files only the names of those that are
 * metadata of tables leave the JVM. (Janino compiles no lambdas and no generic casts.)
 */
public class TableFolders {
  private static final String SEPARATOR = "\0";
  private static final String STORE = "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?";

  public boolean canList(FileIO io) {
    return io instanceof SupportsPrefixOperations;
  }

  /**
   * Return the metadata files of tables below a folder, whose name ends in a slash: their paths
   * from there, each followed by a NUL character. Those of Delta tables are the JSON files of logs.
   */
  public String metadata(FileIO io, String folder) {
    Iterator files;
    try {
      files = ((SupportsPrefixOperations) io).listPrefix(folder).iterator();
    } catch (UncheckedIOException error) {
      // Later it is a folder further inside that has gone meanwhile, and others may follow it.
      if (error.getCause() instanceof FileNotFoundException) {
        return "";
      }
      throw error;
    }
    String above = path(folder);
    StringBuilder result = new StringBuilder();
    while (files.hasNext()) {
      String location = ((FileInfo) files.next()).location();
      String path = path(location);
      if (path.startsWith(above)) {
        if (isMetadata(path)) {
          result.append(path.substring(above.length())).append(SEPARATOR);
        }
      } else if (!above.equals(path + "/")) { // a file of the folder's name
        throw new IllegalStateException(folder + " has a file of another folder: " + location);
      }
    }
    return result.toString();
  }

  private static boolean isMetadata(String path) {
    String[] parts = path.split("/", -1);
    String parent = parts.length > 1 ? parts[parts.length - 2] : "";
    return parent.equals("metadata")
            && (path.endsWith(".metadata.json") || path.endsWith(".metadata.json.gz"))
        || parent.equals("_delta_log") && path.endsWith(".json");
  }

  /** A location without scheme and authority, which listings spell in their own way, or omit. */
  private static String path(String location) {
    return location.replaceFirst(STORE, "").replaceFirst("^/+", "");
  }

  /** Return the first bytes of a file, at most so many. */
  public byte[] beginning(FileIO io, String location, int most) throws Exception {
    SeekableInputStream stream = io.newInputFile(location).newStream();
    try {
      return stream.readNBytes(most);
    } finally {
      stream.close();
    }
  }
}
