import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * IDs of one generator from the CosId agent's socket, fetched ahead of need: most calls of {@link #next} find one in memory.
 * Threads may share it. Java 17, no packages.
 *
 * <p>An ID that was fetched is used up at the agent, and unique for ever, also after the slot was lost: to keep some is safe.
 * Only their timestamps get older, so that they sort before what others make meanwhile: those older than a second are left out.
 */
public final class CosId implements AutoCloseable {
    private static final int BATCH = 512;
    private static final long MAX_AGE_NANOS = TimeUnit.SECONDS.toNanos(1);
    /** The agent itself waits up to 2 s for its window. */
    private static final long REQUEST_MILLIS = 3_000;
    /** Between two tries after a failure that passes. */
    private static final long PAUSE_MILLIS = 20;
    /** An answer of this many IDs has less; what is longer comes from no agent. */
    private static final int LONGEST_ANSWER = 1 << 20;

    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.1 (\\d{3}) ");
    private static final Pattern LENGTH = Pattern.compile("(?i)\r\ncontent-length: *(\\d{1,9})\r\n");
    private static final Pattern IDS = Pattern.compile("^\\{\"ids\":\\[(\\d+(?:,\\d+)*)]");
    private static final Pattern REASON = Pattern.compile("\"reason\":\"(\\w+)\"");
    private static final Pattern MESSAGE = Pattern.compile("\"message\":\"((?:[^\"\\\\]|\\\\.)*)\"");

    private final UnixDomainSocketAddress socket;
    private final byte[] request;
    private final ExecutorService fetcher = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work, "cosid-fetcher");
        thread.setDaemon(true);
        return thread;
    });
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread thread = new Thread(work, "cosid-timer");
        thread.setDaemon(true);
        return thread;
    });
    private Batch current = new Batch(new long[0], 0);
    private int used;
    private Future<Batch> ahead;

    private record Batch(long[] ids, long fetchedNanos) {}

    /** Why there is no ID; `passing`: the same call can succeed later. */
    public static final class NoId extends IOException {
        private static final long serialVersionUID = 1;
        public final boolean passing;

        NoId(String message, boolean passing) {
            super(message);
            this.passing = passing;
        }
    }

    /** Starts to fetch from the agent that `COSID_SOCKET` names. Nothing is waited for: where there is none, next says so. */
    public CosId(String generator) {
        String path = System.getenv("COSID_SOCKET");
        if (path == null || path.isEmpty()) {
            throw new IllegalStateException(
                "COSID_SOCKET is not set: annotate the pod with `cosid/slot: auto`, or start an agent");
        }
        if (!generator.matches("[A-Za-z0-9._-]{1,64}")) {
            throw new IllegalArgumentException("`" + generator + "` is no generator name");
        }
        socket = UnixDomainSocketAddress.of(path);
        request = ("POST /v1/ids?generator=" + generator + "&count=" + BATCH
            + " HTTP/1.1\r\nHost: cosid\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").getBytes(StandardCharsets.US_ASCII);
        ahead = fetcher.submit(this::fetch);
    }

    /** The next ID, waited for at most so long. */
    public synchronized long next(long timeoutMillis) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
        while (used == current.ids.length || System.nanoTime() - current.fetchedNanos > MAX_AGE_NANOS) {
            try {
                current = ahead.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
                used = 0;
                ahead = fetcher.submit(this::fetch);
            } catch (TimeoutException slow) {
                throw new NoId("the agent at " + socket + " did not answer within " + timeoutMillis + " ms", true);
            } catch (ExecutionException failed) {
                ahead = fetcher.submit(this::fetch);
                boolean passing = !(failed.getCause() instanceof NoId said) || said.passing;
                if (!passing || System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PAUSE_MILLIS) >= deadline) {
                    throw new NoId("no ID from " + socket + ": " + failed.getCause().getMessage(), passing);
                }
                wait(PAUSE_MILLIS);
            }
        }
        return current.ids[used++];
    }

    @Override
    public void close() {
        fetcher.shutdownNow();
        timer.shutdownNow();
    }

    /** One request, on a connection of its own: a channel has no timeout, so the timer's thread closes it when time is over. */
    @SuppressWarnings("try")
    private Batch fetch() throws IOException {
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            Future<?> late = timer.schedule(() -> {
                channel.close();
                return null;
            }, REQUEST_MILLIS, TimeUnit.MILLISECONDS);
            try {
                channel.connect(socket);
                return ask(channel);
            } catch (ClosedChannelException closed) {
                throw new NoId("no answer within " + REQUEST_MILLIS + " ms", true);
            } finally {
                late.cancel(false);
            }
        }
    }

    private Batch ask(SocketChannel channel) throws IOException {
        for (ByteBuffer rest = ByteBuffer.wrap(request); rest.hasRemaining();) {
            channel.write(rest);
        }
        ByteBuffer in = ByteBuffer.allocate(LONGEST_ANSWER);
        int headEnd = -1;
        while (headEnd < 0) {
            read(channel, in);
            headEnd = text(in, 0, in.position()).indexOf("\r\n\r\n");
        }
        String head = text(in, 0, headEnd + 2);
        Matcher status = STATUS.matcher(head);
        Matcher length = LENGTH.matcher(head);
        if (!status.lookingAt() || !length.find() || headEnd + 4 + Long.parseLong(length.group(1)) > LONGEST_ANSWER) {
            throw new NoId("what answers is no agent", false);
        }
        int end = headEnd + 4 + Integer.parseInt(length.group(1));
        while (in.position() < end) {
            read(channel, in);
        }
        return batch(Integer.parseInt(status.group(1)), text(in, headEnd + 4, end));
    }

    private static Batch batch(int status, String body) throws NoId {
        Matcher ids = IDS.matcher(body);
        if (status != 200 || !ids.find()) {
            Matcher reason = REASON.matcher(body);
            Matcher message = MESSAGE.matcher(body);
            String says = (reason.find() ? reason.group(1) : "") + (message.find() ? ": " + message.group(1) : "");
            // What the agent refuses with 503 it does not refuse for ever.
            throw new NoId(status + " " + says, status == 503);
        }
        String[] texts = ids.group(1).split(",");
        long[] numbers = new long[texts.length];
        for (int i = 0; i < texts.length; i++) {
            numbers[i] = Long.parseLong(texts[i]);
        }
        return new Batch(numbers, System.nanoTime());
    }

    private static void read(SocketChannel channel, ByteBuffer in) throws IOException {
        if (!in.hasRemaining()) {
            throw new NoId("the answer is longer than an agent's", false);
        }
        if (channel.read(in) < 0) {
            throw new EOFException("the answer ended half way");
        }
    }

    private static String text(ByteBuffer in, int from, int to) {
        return new String(in.array(), from, to - from, StandardCharsets.UTF_8);
    }
}
