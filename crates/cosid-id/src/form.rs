//! IDs as text, in the forms that people have.

use crate::date::{self, Item};
use crate::error::{Error, excerpt};
use crate::friendly::Friendly;
use crate::id::Id;
use crate::layout::Layout;
use crate::radix::{MAX_WIDTH, Radix};
use crate::zone::Zone;

/// How IDs of a layout are written: decimal, radix 62, radix 36 or friendly; padded or not; with a prefix, a date and a
/// suffix.
///
/// An ID has one text in a form, and [`Form::parse`] reads that text and no other: what it accepts,
/// [`Form::format`] writes. Nothing is ever cut or wrapped to fit.
///
/// ```
/// use cosid_id::{DatePrefix, Form, Id, Layout, Zone};
///
/// let id: Id = "295913926632165376".parse()?;
/// let form = Form::radix62(Layout::MILLISECOND).padded().with_prefix("order-");
/// assert_eq!(form.format(id)?, "order-0LrHucXALbs");
/// assert_eq!(form.parse("order-0LrHucXALbs")?, id);
/// assert!(form.parse("user-0LrHucXALbs").is_err());
///
/// let by_day = DatePrefix::new("yyyyMMdd", Zone::UTC, "/")?;
/// let form = Form::decimal(Layout::MILLISECOND).with_date(by_day)?;
/// assert_eq!(form.format(id)?, "20220320/295913926632165376");
/// # Ok::<(), cosid_id::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Form {
    layout: Layout,
    body: Body,
    prefix: String,
    date: Option<DatePrefix>,
    suffix: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Body {
    /// With at least so many digits.
    Digits(Radix, usize),
    Friendly(Friendly),
}

impl Form {
    /// Decimal numbers, as [`Id`]'s own `Display` writes them.
    #[must_use]
    pub const fn decimal(layout: Layout) -> Self {
        Self::new(layout, Body::Digits(Radix::R10, 0))
    }

    /// Radix 62, digits `0-9A-Za-z`: at most 11, and sorted by bytes as the numbers if they are padded.
    ///
    /// ```
    /// use cosid_id::{Form, Id, Layout};
    ///
    /// let form = Form::radix62(Layout::MILLISECOND);
    /// assert_eq!(form.format(3843_u64.try_into()?)?, "zz");
    /// assert_eq!(form.parse("100")?.get(), 3844);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    #[must_use]
    pub const fn radix62(layout: Layout) -> Self {
        Self::new(layout, Body::Digits(Radix::R62, 0))
    }

    /// Radix 36, digits `0-9A-Z`: at most 13, for places that know no lower case.
    #[must_use]
    pub const fn radix36(layout: Layout) -> Self {
        Self::new(layout, Body::Digits(Radix::R36, 0))
    }

    /// `yyyyMMddHHmmssSSS-slot-sequence`, the local time of the ID's timestamp in a zone. Layouts whose unit and epoch
    /// are whole seconds have no milliseconds (`SSS`) here, as CosId has it.
    ///
    /// Where clocks go back an hour comes twice: a time in it is written, but not read.
    ///
    /// ```
    /// use cosid_id::{Form, Layout, Zone};
    ///
    /// let form = Form::friendly(Layout::MILLISECOND, Zone::east_minutes(8 * 60)?)?;
    /// assert_eq!(form.format("295913926632165376".parse()?)?, "20220320133617924-5-0");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadForm`] for a layout that goes on beyond the year 9998.
    pub fn friendly(layout: Layout, zone: Zone) -> Result<Self, Error> {
        check_years(&layout)?;
        let whole_seconds = layout.unit_ms().is_multiple_of(1_000) && layout.epoch_ms().is_multiple_of(1_000);
        Ok(Self::new(layout, Body::Friendly(Friendly { zone, whole_seconds, widths: (0, 0) })))
    }

    const fn new(layout: Layout, body: Body) -> Self {
        Self { layout, body, prefix: String::new(), date: None, suffix: String::new() }
    }

    /// Zeros in front, up to the digits that 63 bits need: 19 decimal ones, 11 in radix 62, 13 in radix 36. In the
    /// friendly form slot and sequence get the digits that the layout's largest ones need.
    #[must_use]
    pub fn padded(mut self) -> Self {
        match &mut self.body {
            Body::Digits(radix, width) => *width = radix.width(63),
            Body::Friendly(friendly) => {
                let width = |bits| Radix::R10.width(bits);
                friendly.widths = (width(self.layout.slot_bits()), width(self.layout.sequence_bits()));
            }
        }
        self
    }

    /// Zeros in front, up to `width` digits: at least those of the layout's largest ID, at most 20.
    ///
    /// ```
    /// use cosid_id::{Form, Layout};
    ///
    /// let form = Form::radix62(Layout::JAVASCRIPT_MILLISECOND).padded_to(9)?;
    /// assert_eq!(form.format(35_u64.try_into()?)?, "00000000Z");
    /// assert!(Form::radix62(Layout::MILLISECOND).padded_to(9).is_err());
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadForm`] for another width, and in the friendly form.
    pub fn padded_to(mut self, width: usize) -> Result<Self, Error> {
        let Body::Digits(radix, digits) = &mut self.body else {
            return Err(Error::BadForm {
                why: "the friendly form has no width of its own; use `padded`".into(),
            });
        };
        let least = radix.width(self.layout.bits());
        if !(least..=MAX_WIDTH).contains(&width) {
            let why = format!(
                "a width of {width} digits: this layout's IDs need {least}, {MAX_WIDTH} are the most"
            );
            return Err(Error::BadForm { why });
        }
        *digits = width;
        Ok(self)
    }

    /// With a text in front of everything.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// With a text after everything.
    #[must_use]
    pub fn with_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = suffix.into();
        self
    }

    /// With a date between the prefix and the ID.
    ///
    /// # Errors
    /// [`Error::BadForm`] for a layout that goes on beyond the year 9998.
    pub fn with_date(mut self, date: DatePrefix) -> Result<Self, Error> {
        check_years(&self.layout)?;
        self.date = Some(date);
        Ok(self)
    }

    /// The layout of the IDs.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The text of an ID.
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn format(&self, id: Id) -> Result<String, Error> {
        if let Some((radix, width)) = self.bare_digits() {
            self.layout.check_id(id)?;
            return Ok(radix.text(id.get(), width));
        }
        let mut text = String::with_capacity(32 + self.prefix.len() + self.suffix.len());
        self.append_all(id, &mut text)?;
        Ok(text)
    }

    /// Appends the text of an ID to another; with room for it, nothing is allocated. After an error nothing was
    /// appended.
    ///
    /// ```
    /// use cosid_id::{Form, Layout};
    ///
    /// let form = Form::radix62(Layout::MILLISECOND).padded();
    /// let mut line = String::with_capacity(64);
    /// form.append("295913926632165376".parse()?, &mut line)?;
    /// line.push('\n');
    /// assert_eq!(line, "0LrHucXALbs\n");
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IdTooWide`] for an ID of another, wider layout.
    pub fn append(&self, id: Id, to: &mut String) -> Result<(), Error> {
        if let Some((radix, width)) = self.bare_digits() {
            self.layout.check_id(id)?;
            radix.push(id.get(), width, to);
            return Ok(());
        }
        self.append_all(id, to)
    }

    /// The most common forms: digits and nothing around them.
    fn bare_digits(&self) -> Option<(Radix, usize)> {
        match self.body {
            Body::Digits(radix, width)
                if self.prefix.is_empty() && self.date.is_none() && self.suffix.is_empty() =>
            {
                Some((radix, width))
            }
            _ => None,
        }
    }

    /// Apart from the others, who then have less to set up.
    #[inline(never)]
    fn append_all(&self, id: Id, to: &mut String) -> Result<(), Error> {
        self.layout.check_id(id)?;
        if !self.prefix.is_empty() {
            to.push_str(&self.prefix);
        }
        if let Some(date) = &self.date {
            date.push(self.layout.timestamp(id), to);
            to.push_str(&date.delimiter);
        }
        match &self.body {
            Body::Digits(radix, width) => radix.push(id.get(), *width, to),
            Body::Friendly(friendly) => {
                let parts = self.layout.decompose(id)?;
                friendly.push(parts.timestamp(), parts.slot(), parts.sequence(), to);
            }
        }
        if !self.suffix.is_empty() {
            to.push_str(&self.suffix);
        }
        Ok(())
    }

    /// The ID that a text stands for.
    ///
    /// # Errors
    /// [`Error::BadText`] for what this form does not write; [`Error::IdTooWide`], [`Error::SlotTooLarge`],
    /// [`Error::SequenceTooLarge`], [`Error::BeforeEpoch`] and [`Error::PastLayout`] for what the layout does not hold.
    pub fn parse(&self, text: &str) -> Result<Id, Error> {
        let bad = |why: String| Error::BadText { text: excerpt(text), form: self.name(), why };
        let rest = strip_prefix(text, &self.prefix)
            .ok_or_else(|| bad(format!("it does not begin with `{}`", self.prefix)))?;
        let rest = strip_suffix(rest, &self.suffix)
            .ok_or_else(|| bad(format!("it does not end with `{}`", self.suffix)))?;
        let (day, rest) = match &self.date {
            Some(date) => date.split(rest).ok_or_else(|| bad("it has no such date in front".into()))?,
            None => ("", rest),
        };

        let id = match &self.body {
            Body::Digits(radix, width) => {
                let number = radix.parse(rest, *width).map_err(|why| bad(why.into()))?;
                Id::try_from(number).map_err(|_| bad("it is too large for an ID of 63 bits".into()))?
            }
            Body::Friendly(friendly) => {
                let (unix_ms, slot, sequence) = friendly.parse(rest).map_err(|why| bad(why.into()))?;
                let id = self.layout.compose(unix_ms, slot, sequence)?;
                if self.layout.timestamp(id) != unix_ms {
                    return Err(bad("no unit of the layout begins at its time".into()));
                }
                id
            }
        };
        self.layout.check_id(id)?;
        match &self.date {
            Some(date) if !date.fits(day, self.layout.timestamp(id)) => {
                Err(bad("its date is not the ID's".into()))
            }
            _ => Ok(id),
        }
    }

    const fn name(&self) -> &'static str {
        match &self.body {
            Body::Digits(Radix::R10, _) => "decimal",
            Body::Digits(Radix::R36, _) => "radix 36",
            Body::Digits(Radix::R62, _) => "radix 62",
            Body::Friendly(_) => "friendly",
        }
    }
}

/// `str::strip_prefix`, but not for the most common prefix, none: to compare no bytes with those of an empty `String`,
/// whose address is not mapped, takes the masked loads of glibc's `memcmp` 180 ns.
fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    if prefix.is_empty() { Some(text) } else { text.strip_prefix(prefix) }
}

fn strip_suffix<'a>(text: &'a str, suffix: &str) -> Option<&'a str> {
    if suffix.is_empty() { Some(text) } else { text.strip_suffix(suffix) }
}

/// Four digits hold a year; a year is left for the time zone and for what time zone databases know.
fn check_years(layout: &Layout) -> Result<(), Error> {
    const YEAR_9999: u64 = 253_370_764_800_000;
    if layout.tick_end(layout.max_tick()) >= YEAR_9999 {
        let why =
            "dates are written with four digits for the year, and the layout goes on beyond the year 9998";
        return Err(Error::BadForm { why: why.into() });
    }
    Ok(())
}

/// A date in front of an ID, and what stands between them.
///
/// It is the date of the ID's own timestamp. CosId writes the date at which the text was made instead; for texts that
/// it wrote there is [`DatePrefix::any_date`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatePrefix {
    items: Vec<Item>,
    zone: Zone,
    delimiter: String,
    any: bool,
}

impl DatePrefix {
    /// The pattern may have `yyyy`, `yy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS` and ASCII punctuation and spaces.
    ///
    /// # Errors
    /// [`Error::BadForm`] for another pattern.
    pub fn new(pattern: &str, zone: Zone, delimiter: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { items: date::items(pattern)?, zone, delimiter: delimiter.into(), any: false })
    }

    /// When reading, anything that has the digits of a date is accepted, and not only the ID's own: an ID then has more
    /// than one text.
    ///
    /// ```
    /// use cosid_id::{DatePrefix, Form, Layout, Zone};
    ///
    /// let date = DatePrefix::new("yyyyMMdd", Zone::UTC, "-")?;
    /// let strict = Form::decimal(Layout::MILLISECOND).with_date(date.clone())?;
    /// let lenient = Form::decimal(Layout::MILLISECOND).with_date(date.any_date())?;
    /// let written_a_day_later = "20220321-295913926632165376";
    /// assert!(strict.parse(written_a_day_later).is_err());
    /// assert_eq!(lenient.parse(written_a_day_later)?.get(), 295913926632165376);
    /// # Ok::<(), cosid_id::Error>(())
    /// ```
    #[must_use]
    pub fn any_date(mut self) -> Self {
        self.any = true;
        self
    }

    fn push(&self, unix_ms: u64, to: &mut String) {
        date::push(&self.items, &self.zone.local(unix_ms), to);
    }

    /// The date, and what comes after the delimiter.
    fn split<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let (day, rest) = text.split_at_checked(date::width(&self.items))?;
        Some((day, strip_prefix(rest, &self.delimiter)?))
    }

    fn fits(&self, day: &str, unix_ms: u64) -> bool {
        if self.any {
            return date::has_shape(&self.items, day);
        }
        let mut expected = String::with_capacity(day.len());
        self.push(unix_ms, &mut expected);
        day == expected
    }
}
