import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Threads that share one source of IDs.
 *
 * <pre>
 * javac -d target/java examples/languages/java/*.java
 * COSID_SOCKET=... java -cp target/java Ids orders 4 1000
 * </pre>
 *
 * prints 1000 IDs of each of 4 threads.
 */
public final class Ids {
    /** How long one ID may take. */
    private static final long PATIENCE_MILLIS = 2_000;

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 3) {
            System.err.println("usage: Ids GENERATOR THREADS COUNT");
            System.exit(64);
        }
        int threads = Integer.parseInt(args[1]);
        int count = Integer.parseInt(args[2]);
        ExecutorService workers = Executors.newFixedThreadPool(threads);
        try (CosId ids = new CosId(args[0])) {
            Callable<long[]> make = () -> {
                long[] made = new long[count];
                for (int i = 0; i < count; i++) {
                    made[i] = ids.next(PATIENCE_MILLIS);
                }
                return made;
            };
            List<Callable<long[]>> work = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                work.add(make);
            }
            StringBuilder out = new StringBuilder();
            for (Future<long[]> made : workers.invokeAll(work)) {
                for (long id : made.get()) {
                    out.append(id).append('\n');
                }
            }
            System.out.print(out);
        } catch (ExecutionException failed) {
            System.err.println(failed.getCause().getMessage());
            System.exit(1);
        } finally {
            workers.shutdown();
        }
    }
}
