package delvec;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.CloseableIterator;
import org.apache.iceberg.util.ContentFileUtil;

/**
 * Describes data files of a snapshot and the position deletes that Iceberg's planner assigns to
 * them, all in one call. (Janino compiles no lambdas and no generic casts.)
 */
public class PositionDeletes {
  private static final String SEPARATOR = "\0";

  /**
   * Return for each of the wanted data files: its JSON object, the number of its position deletes,
   * and for each of these its JSON object and whether it is about this data file alone; separated
   * by NUL characters.
   */
  public String find(Table table, long snapshotId, String paths) throws Exception {
    Set wanted = new HashSet(Arrays.asList(paths.split(SEPARATOR)));
    StringBuilder result = new StringBuilder();
    BatchScan scan = (BatchScan) table.newBatchScan().useSnapshot(snapshotId);
    CloseableIterable tasks = scan.planFiles();
    CloseableIterator iterator = tasks.iterator();
    try {
      while (!wanted.isEmpty() && iterator.hasNext()) {
        FileScanTask task = (FileScanTask) iterator.next();
        DataFile data = (DataFile) task.file();
        if (!wanted.remove(data.location())) { // the same file may be registered twice
          continue;
        }
        List found = new ArrayList();
        Iterator deletes = task.deletes().iterator();
        while (deletes.hasNext()) {
          DeleteFile file = (DeleteFile) deletes.next();
          if (file.content() == FileContent.POSITION_DELETES) {
            found.add(file);
          }
        }
        append(result, ContentFileParser.toJson(data, task.spec()));
        append(result, String.valueOf(found.size()));
        for (int i = 0; i < found.size(); i++) {
          DeleteFile file = (DeleteFile) found.get(i);
          PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.specId()));
          append(result, ContentFileParser.toJson(file, spec));
          append(result, String.valueOf(ContentFileUtil.isFileScoped(file)));
        }
      }
    } finally {
      iterator.close();
      tasks.close();
    }
    return result.toString();
  }

  private static void append(StringBuilder to, String value) {
    to.append(value).append(SEPARATOR);
  }
}
