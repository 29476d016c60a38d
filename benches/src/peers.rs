//! The others, set up as their documentation has it; with a layout of many sequences where they can have one.

use std::error::Error;

use ferroid::generator::{AtomicSnowflakeGenerator, LockSnowflakeGenerator};
use ferroid::time::{MonotonicClock, TWITTER_EPOCH};
use snowdon::{Epoch, Layout, Snowflake};

ferroid::define_snowflake_id!(Wide, u64, reserved: 1, timestamp: 41, machine_id: 2, sequence: 20);
ferroid::define_snowflake_id!(Twitter, u64, reserved: 1, timestamp: 41, machine_id: 10, sequence: 12);

pub type FerroidAtomic<ID> = AtomicSnowflakeGenerator<ID, MonotonicClock>;
pub type FerroidLock<ID> = LockSnowflakeGenerator<ID, MonotonicClock>;

pub fn ferroid_clock() -> MonotonicClock {
    MonotonicClock::with_epoch(TWITTER_EPOCH)
}

pub fn spin<T>(_: T) {
    std::hint::spin_loop();
}

/// With 20 bits of sequence, or the default 12.
pub fn snowflake_me(wide: bool) -> Result<snowflake_me::Snowflake, Box<dyn Error>> {
    let builder = snowflake_me::Snowflake::builder().machine_id(&|| Ok(1)).data_center_id(&|| Ok(1));
    let builder = if wide {
        builder.bit_len_sequence(20).bit_len_machine_id(1).bit_len_data_center_id(1)
    } else {
        builder
    };
    Ok(builder.finalize()?)
}

/// snowdon's layout of the same bits.
pub struct SnowdonWide;

impl Layout for SnowdonWide {
    fn construct_snowflake(timestamp: u64, sequence_number: u64) -> u64 {
        timestamp << 22 | 1 << 20 | sequence_number
    }
    fn timestamp(input: u64) -> u64 {
        input >> 22
    }
    fn exceeds_timestamp(input: u64) -> bool {
        input >= 1 << 41
    }
    fn sequence_number(input: u64) -> u64 {
        input & ((1 << 20) - 1)
    }
    fn exceeds_sequence_number(input: u64) -> bool {
        input >= 1 << 20
    }
    fn is_valid_snowflake(input: u64) -> bool {
        (input >> 20) & 3 == 1
    }
}

impl Epoch for SnowdonWide {
    fn millis_since_unix() -> u64 {
        1_577_203_200_000
    }
}

pub type Snowdon = snowdon::Generator<SnowdonWide, SnowdonWide>;
pub type SnowdonId = Snowflake<SnowdonWide, SnowdonWide>;

pub fn idgenerator() -> Result<(), Box<dyn Error>> {
    let options = idgenerator::IdGeneratorOptions::new().worker_id(1).worker_id_bit_len(2).seq_bit_len(19);
    idgenerator::IdInstance::init(options).map_err(|error| format!("{error:?}").into())
}

pub fn sonyflake() -> Result<sonyflake::Sonyflake, Box<dyn Error>> {
    Ok(sonyflake::Sonyflake::builder().machine_id(&|| Ok(1)).finalize()?)
}
