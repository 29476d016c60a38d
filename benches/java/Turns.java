import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import me.ahoo.cosid.CosId;
import me.ahoo.cosid.snowflake.MillisecondSnowflakeId;

/** CosId in turns: for each line with a number it makes so many IDs, and prints the ns that it took. */
public final class Turns {
    /** IDs before the first turn, so that the compiler has done all that it is going to do. */
    private static final int WARM = 20_000_000;

    /** For someone to look at, or the IDs need not be made. */
    private static volatile long last;

    private Turns() {
    }

    public static void main(String[] args) throws IOException {
        // As many sequences as nobody uses up in a millisecond, as all others have them here.
        var generator = new MillisecondSnowflakeId(CosId.COSID_EPOCH, 41, 2, 20, 1);
        for (int made = 0; made < WARM; made += 500_000) {
            turn(generator, 500_000);
        }
        System.out.println("ready");
        var orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(turn(generator, Integer.parseInt(line)));
        }
    }

    private static long turn(MillisecondSnowflakeId generator, int count) {
        long sum = 0;
        long start = System.nanoTime();
        for (int made = 0; made < count; made++) {
            sum ^= generator.generate();
        }
        long took = System.nanoTime() - start;
        last = sum;
        return took;
    }
}
