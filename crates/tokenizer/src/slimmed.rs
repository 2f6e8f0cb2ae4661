//! A vocabulary with fewer tokens, which keep their order and get new ids.
//!
//! ```text
//! old   0 <unk>  1 <s>  2 </s>  3 the  4 of  5 and        kept  0 1 2 4
//! new   0 <unk>  1 <s>  2 </s>  3 of
//! ```

use crate::vocabulary::{Algorithm, Merge, Parts, Token, TokenKind, Vocabulary};
use std::collections::BTreeSet;
use trueup_formats::Result;

impl Vocabulary {
    /// Tokens that no smaller vocabulary may lack, by their ids: those with a role, around every text and added to be
    /// found in texts, and those of single bytes and characters of the alphabet of bytes, without which some texts
    /// would have no ids; pieces that the maker of the model wanted whole, which a normalizer may leave as they are;
    /// and of a unigram model one with the lowest score, below which what is unknown is scored.
    pub fn indispensable(&self) -> BTreeSet<u32> {
        let added = self.added().iter().map(|added| added.id);
        let whole = self.kept_whole().map(|(id, _)| id);
        self.steering().into_iter().chain(added).chain(self.bytes()).chain(whole).chain(self.lowest()).collect()
    }

    /// Tokens of single bytes, and of characters of the alphabet of bytes.
    pub fn bytes(&self) -> BTreeSet<u32> {
        let byte_level = self.is_byte_level();
        let is_byte = |token: &Token| {
            token.kind == TokenKind::Byte
                || (byte_level && token.kind != TokenKind::Unused && token.text.chars().count() == 1)
        };
        (0u32..).zip(self.tokens()).filter(|(_, token)| is_byte(token)).map(|(id, _)| id).collect()
    }

    /// A token with the lowest score, where sums of scores decide.
    fn lowest(&self) -> Option<u32> {
        let Algorithm::Unigram { rule } = self.algorithm() else { return None };
        let scored = (0u32..).zip(self.tokens()).filter(|(_, token)| rule.counts(token));
        scored.min_by(|first, second| first.1.score.total_cmp(&second.1.score)).map(|(id, _)| id)
    }

    /// Tokens with a role, and those around every text.
    pub fn steering(&self) -> BTreeSet<u32> {
        let around = self.prefix().iter().chain(self.suffix()).copied();
        self.special().ids().map(|(_, id)| id).chain(around).collect()
    }

    /// The vocabulary of these tokens alone, which are given by their ids, rising; each gets its place among them as
    /// its new id. Roles of others are empty.
    ///
    /// # Errors
    /// None of them is a token.
    pub fn slimmed(&self, kept: &[u32]) -> Result<Vocabulary> {
        let new = |id: u32| kept.binary_search(&id).ok().and_then(|place| u32::try_from(place).ok());
        let Parts {
            algorithm, normalizer, pre_tokenizer, decoder, added, special, prefix, suffix, chat_template, ..
        } = self.parts().clone();
        let merge = |merge: &Merge| {
            Some(Merge { left: new(merge.left)?, right: new(merge.right)?, result: new(merge.result)? })
        };
        let algorithm = match algorithm {
            Algorithm::Merges { merges, byte_fallback, fuse_unknown, ignore_merges } => Algorithm::Merges {
                merges: merges.iter().filter_map(merge).collect(),
                byte_fallback,
                fuse_unknown,
                ignore_merges,
            },
            algorithm @ (Algorithm::Scores
            | Algorithm::Unigram { .. }
            | Algorithm::WordPiece { .. }
            | Algorithm::DecodeOnly { .. }) => algorithm,
        };
        let renumbered = |ids: Vec<u32>| ids.into_iter().filter_map(new).collect();
        let mut parts = Parts {
            tokens: kept.iter().filter_map(|id| self.token(*id).cloned()).collect(),
            algorithm,
            normalizer,
            pre_tokenizer,
            decoder,
            added: added
                .into_iter()
                .filter_map(|token| Some(crate::AddedToken { id: new(token.id)?, ..token }))
                .collect(),
            special,
            prefix: renumbered(prefix),
            suffix: renumbered(suffix),
            chat_template,
        };
        parts.special.renumber(new);
        Ok(Vocabulary::new(parts, self.path())?.with_notes(self.notes().to_vec()))
    }
}
