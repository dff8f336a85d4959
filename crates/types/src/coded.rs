//! Enums that records hold as one byte, enums with names, and structs with defaults.

/// An enum of which a record holds one byte.
pub trait Coded: Copy + 'static {
    /// As errors name the field.
    const FIELD: &'static str;

    /// The byte that the log has for this variant; never changes.
    fn byte(self) -> u8;

    /// The variant with this byte.
    fn of(byte: u8) -> Option<Self>;
}

/// Declares an enum whose variants have bytes for ever: a byte that was once
/// written must not get another meaning. They may have words as well.
#[macro_export]
macro_rules! coded {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, $field:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $byte:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $byte,)*
        }

        impl $name {
            /// Every variant, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::Coded for $name {
            const FIELD: &'static str = $field;

            fn byte(self) -> u8 {
                self as u8
            }

            fn of(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident, $field:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $byte:literal => $word:literal,)*
        }
    ) => {
        $crate::coded! {
            $(#[$meta])*
            pub enum $name, $field {
                $($(#[$variant_meta])* $variant = $byte,)*
            }
        }

        impl $name {
            /// The word for it in settings, the API, hooks and the command line.
            pub const fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The variant with this word.
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}

/// Declares an enum whose variants have names, and the function that tells them.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident, $told:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $enum {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $enum {
            /// How many there are.
            $vis const COUNT: usize = [$($name),*].len();

            /// All there are, in the order of their declaration.
            $vis const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];

            /// As settings, metrics and programs name it.
            $vis const fn $told(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

/// Declares a struct whose fields have defaults, each beside its field; a `const struct` has them as
/// the constant `DEFAULT` too.
#[macro_export]
macro_rules! defaults {
    (
        $(#[$meta:meta])*
        $vis:vis struct $struct:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $struct {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis const struct $struct:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $struct {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $struct {
            /// What it is by default.
            $vis const DEFAULT: Self = Self { $($field: $default,)* };
        }

        impl Default for $struct {
            fn default() -> Self {
                Self::DEFAULT
            }
        }
    };
}
