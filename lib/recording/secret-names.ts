// Decides by words whether a name says that its value is a secret, an identifier or a checksum.

/** The ends of words that name a secret: `apikey` and `DBPASS` count, too. */
const secretEnd =
  "(?:pass(?:wor[dt]|wd|phrase|code|key)?|pwd?|psk|pin|token|secret|cred(?:ential)?|authorization|auth|cookie|key|salt|signature|mnemonic|otp|jwt|bearer|dsn)s?";
const secretWord = new RegExp(`${secretEnd}$`);
const containsSecretWord = new RegExp(secretEnd, "i");

/** Last words of names that only tell of a secret: where it is, how long it lasts, what kind it is. */
const referringWord =
  /^(?:(?:name|namespace|ref|reference|file|path|dir|id|uid|url|uri|arn|endpoint|host|port|domain|server|service|issuer|audience|provider|store|class|kind|type|mode|policy|status|format|version|algorithm|usage|method|strategy|size|length|limit|second|minute|hour|day|interval|period|duration|selector|prefix|header|claim|scope|group|role|review|label|annotation)s?|count|ttl|age|at|time|timestamp|since|until|expiry|expiration|expires|spec|used|enabled|disabled|required|directory|location|region|rotation)$/;

/** A key that is no secret: the word `key` after another word, such as `public` or `sort`. */
const ordinaryKey =
  /(?:topology|labels?|map|replica|capacity|annotation|taint|toleration|selector|node|public|pub|object|partition|sort|primary|foreign|index|group|field|header|config|property|cache|row)keys?$/;

/** Returns the words of a name, in lower case: those of `dbAPIKey2`, `db-api-key` and `example.com/db.apiKey` are alike. */
const splitWords = (name: string): string[] =>
  (name.slice(name.lastIndexOf("/") + 1).match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])/g) ?? []).map((word) =>
    word.toLowerCase(),
  );

const isSecretWord = (word: string, index: number, words: string[]): boolean =>
  secretWord.test(word) && !ordinaryKey.test(`${words[index - 1] ?? ""}${word}`);

/**
 * Reports whether the name of a member, variable, option or header says that its value is a secret: it has a word such
 * as `token`, and doesn't end in a word that makes it a reference, such as `tokenPath`.
 */
export const isSecretName = (name: string): boolean => {
  if (!containsSecretWord.test(name)) return false;
  const words = splitWords(name);
  const [last = ""] = words.slice(-1);
  return words.some(isSecretWord) && (!referringWord.test(last) || /secret-?ids?$/.test(words.slice(-2).join("-")));
};

/** Reports whether a name says that its number is a secret, unlike `maxTokens` and `keySize`. */
export const isSecretNumberName = (name: string): boolean =>
  isSecretName(name) && !isBareKey(name) && secretWord.test(splitWords(name).at(-1) ?? "") && !name.endsWith("s");

/** Reports whether a name is the word key alone, which names a secret in some places and a name in others. */
export const isBareKey = (name: string): boolean => /^keys?$/i.test(name);

export const isSecretVariable = (name: string): boolean =>
  isSecretName(name) || /pass|pwd|token|secret|credential|auth|key|salt|private|cookie|dsn/i.test(name);

/** Reports whether a name says that its value identifies something, as in `podUID`. */
export const isIdentifierName = (name: string): boolean =>
  /^(?:(?:gu|uu|u)?ids?|handle)$/.test(splitWords(name).at(-1) ?? "");

/** Reports whether a name says that its value is a checksum, a commit or an id with as many digits. */
export const isChecksumName = (name: string): boolean =>
  /(?:container|image|machine)-?id$/i.test(name) ||
  splitWords(name.replaceAll("/", "-")).some((word) =>
    /^(?:sha|hash|digest|checksum|commit|revision|version|tag|fingerprint)s?$/.test(word),
  );
