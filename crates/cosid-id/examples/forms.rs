//! What writing and reading an ID costs in each form, in nanoseconds:
//! `cargo run --release -p cosid-id --example forms`

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use cosid_id::{Form, Id, Layout, Zone};

const ROUNDS: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let layout = Layout::MILLISECOND;
    let ids: Vec<Id> = (0..10_000_u32)
        .map(|index| layout.compose(1_700_000_000_000 + u64::from(index) * 7, index % 1024, index % 4096))
        .collect::<Result<_, _>>()?;

    let rate = |what: &str, work: &mut dyn FnMut() -> Result<(), cosid_id::Error>| {
        // The quickest round is the one in which nobody else wanted the processor.
        let mut quickest = f64::MAX;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            work()?;
            quickest = quickest.min(start.elapsed().as_secs_f64());
        }
        let each = quickest * 1e9 / ids.len() as f64;
        println!("{what:<36} {each:6.1} ns");
        Ok::<(), cosid_id::Error>(())
    };

    rate("radix 62, 11 bytes", &mut || {
        for &id in &ids {
            black_box(black_box(id).to_radix62());
        }
        Ok(())
    })?;
    rate("the same, a division for each", &mut || {
        for &id in &ids {
            black_box(one_at_a_time(black_box(id).get()));
        }
        Ok(())
    })?;
    rate("the standard library: a String", &mut || {
        for &id in &ids {
            black_box(black_box(id).get().to_string());
        }
        Ok(())
    })?;
    for (what, form) in [
        ("radix 62 padded", Form::radix62(layout).padded()),
        ("radix 62", Form::radix62(layout)),
        ("radix 36", Form::radix36(layout)),
        ("decimal", Form::decimal(layout)),
        ("friendly", Form::friendly(layout, Zone::UTC)?),
    ] {
        let mut text = String::with_capacity(64);
        rate(&format!("{what}: append"), &mut || {
            ids.iter().try_for_each(|&id| {
                text.clear();
                form.append(id, &mut text)?;
                black_box(&text);
                Ok(())
            })
        })?;
        rate(&format!("{what}: a String"), &mut || {
            ids.iter().try_for_each(|&id| black_box(form.format(black_box(id))).map(drop))
        })?;
        let texts = ids.iter().map(|&id| form.format(id)).collect::<Result<Vec<_>, _>>()?;
        rate(&format!("{what}: parse"), &mut || {
            texts.iter().try_for_each(|text| black_box(form.parse(text)).map(drop))
        })?;
    }
    Ok(())
}

/// Eleven digits as one would write them first.
fn one_at_a_time(mut value: u64) -> [u8; 11] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [0; 11];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS.get((value % 62) as usize).copied().unwrap_or_default();
        value /= 62;
    }
    text
}
