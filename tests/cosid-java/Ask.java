import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.StringJoiner;

import me.ahoo.cosid.CosId;
import me.ahoo.cosid.IdConverter;
import me.ahoo.cosid.converter.DatePrefixIdConverter;
import me.ahoo.cosid.converter.PrefixIdConverter;
import me.ahoo.cosid.converter.Radix36IdConverter;
import me.ahoo.cosid.converter.Radix62IdConverter;
import me.ahoo.cosid.converter.SnowflakeFriendlyIdConverter;
import me.ahoo.cosid.converter.SuffixIdConverter;
import me.ahoo.cosid.converter.ToStringIdConverter;
import me.ahoo.cosid.cosid.CosIdIdStateParser;
import me.ahoo.cosid.cosid.CosIdState;
import me.ahoo.cosid.cosid.FriendlyCosIdGenerator;
import me.ahoo.cosid.cosid.Radix36CosIdGenerator;
import me.ahoo.cosid.cosid.Radix62CosIdGenerator;
import me.ahoo.cosid.snowflake.MillisecondSnowflakeId;
import me.ahoo.cosid.snowflake.SafeJavaScriptSnowflakeId;
import me.ahoo.cosid.snowflake.SecondSnowflakeId;
import me.ahoo.cosid.snowflake.SnowflakeId;
import me.ahoo.cosid.snowflake.SnowflakeIdState;
import me.ahoo.cosid.snowflake.SnowflakeIdStateParser;

/**
 * Asks CosId: a question a line, its fields separated by tabs; an answer a line, `!` and the exception's name where
 * CosId throws one.
 *
 * <pre>
 * compose LAYOUT TIME MACHINE SEQUENCE   the ID that its generator makes then (TIME in the layout's unit, since 1970)
 * decode LAYOUT ID                       Unix ms, machine, sequence
 * generate LAYOUT TIME...                the IDs of one new generator of machine 1, which is asked at these times
 * write FORM ID, read FORM TEXT          FORM is a converter, see {@link #converter}
 * wide write KIND MS MACHINE SEQUENCE    CosIdGenerator's text; KIND is r62, r36 or a time zone
 * wide read KIND TEXT                    Unix ms, machine, sequence
 * </pre>
 */
public final class Ask {
    private static final Map<String, IdConverter> CONVERTERS = new HashMap<>();
    private static final Map<String, CosIdIdStateParser> WIDE = new HashMap<>();

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t", -1));
            } catch (RuntimeException refused) {
                answer = "!" + refused.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
    }

    private static String answer(String[] ask) {
        return switch (ask[0]) {
            case "compose" -> String.valueOf(compose(ask[1], number(ask[2]), (int) number(ask[3]), number(ask[4])));
            case "decode" -> decode(ask[1], number(ask[2]));
            case "generate" -> generate(ask[1], Arrays.stream(ask).skip(2).mapToLong(Ask::number).toArray());
            case "write" -> converter(ask[1]).asString(number(ask[2]));
            case "read" -> String.valueOf(converter(ask[1]).asLong(ask[2]));
            case "wide" -> wide(ask);
            default -> throw new UnsupportedOperationException(ask[0]);
        };
    }

    private static long number(String text) {
        return Long.parseLong(text);
    }

    /** A CosId generator whose clock is set. Bits and epoch are those that CosId's own constructors choose. */
    private interface Set extends SnowflakeId {
        void set(long time);

        /** Makes the next ID, if none is made in between, have this sequence, at a time after all others. */
        void before(long sequence);
    }

    private static final class Milliseconds extends MillisecondSnowflakeId implements Set {
        private long time;

        Milliseconds(SnowflakeId like, int machine, long threshold) {
            super(like.getEpoch(), like.getTimestampBit(), like.getMachineBit(), like.getSequenceBit(), machine, threshold);
        }

        @Override
        protected long getCurrentTime() {
            return time;
        }

        @Override
        public void set(long time) {
            this.time = time;
        }

        @Override
        public void before(long sequence) {
            this.sequence = (sequence - 1) & maxSequence;
        }
    }

    private static final class Seconds extends SecondSnowflakeId implements Set {
        private long time;

        Seconds(SnowflakeId like, int machine, long threshold) {
            super(like.getEpoch(), like.getTimestampBit(), like.getMachineBit(), like.getSequenceBit(), machine, threshold);
        }

        @Override
        protected long getCurrentTime() {
            return time;
        }

        @Override
        public void set(long time) {
            this.time = time;
        }

        @Override
        public void before(long sequence) {
            this.sequence = (sequence - 1) & maxSequence;
        }
    }

    private static SnowflakeId named(String layout) {
        return switch (layout) {
            case "ms" -> new MillisecondSnowflakeId(0);
            case "s" -> new SecondSnowflakeId(0);
            case "js-ms" -> withEpoch(SafeJavaScriptSnowflakeId.ofMillisecond(0), CosId.COSID_EPOCH);
            case "js-default-ms" -> SafeJavaScriptSnowflakeId.ofMillisecond(0);
            case "js-s" -> SafeJavaScriptSnowflakeId.ofSecond(0);
            default -> throw new UnsupportedOperationException(layout);
        };
    }

    private static SnowflakeId withEpoch(SnowflakeId like, long epoch) {
        return SafeJavaScriptSnowflakeId.ofMillisecond(epoch, like.getTimestampBit(), like.getMachineBit(),
            like.getSequenceBit(), 0, SnowflakeId.defaultSequenceResetThreshold(like.getSequenceBit()));
    }

    private static Set generator(String layout, int machine, long threshold) {
        return layout.endsWith("ms") ? new Milliseconds(named(layout), machine, threshold)
            : new Seconds(named(layout), machine, threshold);
    }

    private static long compose(String layout, long time, int machine, long sequence) {
        var generator = generator(layout, machine, Long.MAX_VALUE);
        generator.before(sequence);
        generator.set(time);
        return generator.generate();
    }

    private static String decode(String layout, long id) {
        SnowflakeIdState state = SnowflakeIdStateParser.of(named(layout), ZoneOffset.UTC, false).parse(id);
        long ms = state.getTimestamp().toInstant(ZoneOffset.UTC).toEpochMilli();
        return ms + "\t" + state.getMachineId() + "\t" + state.getSequence();
    }

    private static String generate(String layout, long[] times) {
        // The threshold that CosId's own generators of these bits have.
        long threshold = switch (layout) {
            case "ms" -> MillisecondSnowflakeId.DEFAULT_SEQUENCE_RESET_THRESHOLD;
            case "s" -> SecondSnowflakeId.DEFAULT_SEQUENCE_RESET_THRESHOLD;
            default -> SnowflakeId.defaultSequenceResetThreshold(named(layout).getSequenceBit());
        };
        var generator = generator(layout, 1, threshold);
        var ids = new StringJoiner("\t");
        for (long time : times) {
            generator.set(time);
            ids.add(String.valueOf(generator.generate()));
        }
        return ids.toString();
    }

    /**
     * Parts separated by `|`: `prefix=P`, `suffix=S`, `date=PATTERN,DELIMITER` around one of `dec`, `dec=WIDTH`, `r62`,
     * `r62=WIDTH`, `r36`, `r36=WIDTH`, `friendly=LAYOUT,ZONE`, `padded=LAYOUT,ZONE`.
     */
    private static IdConverter converter(String form) {
        IdConverter known = CONVERTERS.get(form);
        if (known == null) {
            known = makeConverter(form);
            CONVERTERS.put(form, known);
        }
        return known;
    }

    private static IdConverter makeConverter(String form) {
        String[] parts = form.split("\\|", 2);
        String[] named = parts[0].split("=", 2);
        String value = named.length == 2 ? named[1] : null;
        switch (named[0]) {
            case "prefix":
                return new PrefixIdConverter(value, makeConverter(parts[1]));
            case "suffix":
                return new SuffixIdConverter(value, makeConverter(parts[1]));
            case "date":
                String[] date = value.split(",", 2);
                return new DatePrefixIdConverter(date[0], date[1], makeConverter(parts[1]));
            case "dec":
                return value == null ? ToStringIdConverter.INSTANCE : new ToStringIdConverter(true, Integer.parseInt(value));
            case "r62":
                return value == null ? Radix62IdConverter.INSTANCE : Radix62IdConverter.of(true, Integer.parseInt(value));
            case "r36":
                return value == null ? Radix36IdConverter.INSTANCE : Radix36IdConverter.of(true, Integer.parseInt(value));
            case "friendly", "padded":
                String[] layoutAndZone = value.split(",", 2);
                boolean pad = named[0].equals("padded");
                return new SnowflakeFriendlyIdConverter(
                    SnowflakeIdStateParser.of(named(layoutAndZone[0]), ZoneId.of(layoutAndZone[1]), pad));
            default:
                throw new UnsupportedOperationException(form);
        }
    }

    private static String wide(String[] ask) {
        var parser = WIDE.computeIfAbsent(ask[2], kind -> switch (kind) {
            case "r62" -> new Radix62CosIdGenerator(0).getStateParser();
            case "r36" -> new Radix36CosIdGenerator(0).getStateParser();
            default -> new FriendlyCosIdGenerator(0, ZoneId.of(kind), false).getStateParser();
        });
        if (ask[1].equals("write")) {
            return parser.asString(number(ask[3]), (int) number(ask[4]), (int) number(ask[5]));
        }
        CosIdState state = parser.asState(ask[3]);
        return state.getTimestamp() + "\t" + state.getMachineId() + "\t" + state.getSequence();
    }
}
