// Decides by the words of a name whether its value is a secret, an identifier or a checksum.

/** The endings of words for a secret. They are endings, so that `apikey` and `DBPASS` match, too. */
const secretEnd =
  "(?:pass(?:wor[dt]|wd|phrase|code|key)?|pwd?|psk|pin|token|secret|cred(?:ential)?|authorization|auth|cookie|key|salt|signature|mnemonic|otp|jwt|bearer|dsn)s?";
const secretWord = new RegExp(`${secretEnd}$`);
const containsSecretWord = new RegExp(secretEnd, "i");

/** The last words of names whose values only describe a secret: its place, its lifetime, its type and so on. */
const referringWord =
  /^(?:(?:name|namespace|ref|reference|file|path|dir|id|uid|url|uri|arn|endpoint|host|port|domain|server|service|issuer|audience|provider|store|class|kind|type|mode|policy|status|format|version|algorithm|usage|method|strategy|size|length|limit|second|minute|hour|day|interval|period|duration|selector|prefix|header|claim|scope|group|role|review|label|annotation)s?|count|ttl|age|at|time|timestamp|since|until|expiry|expiration|expires|spec|used|enabled|disabled|required|directory|location|region|rotation)$/;

/** Names in which the word `key` means no secret, such as `publicKey` and `sortKey`. */
const ordinaryKey =
  /(?:topology|labels?|map|replica|capacity|annotation|taint|toleration|selector|node|public|pub|object|partition|sort|primary|foreign|index|group|field|header|config|property|cache|row)keys?$/;

/** Returns the words of a name in lower case: db, api, key for `dbAPIKey2`, `db-api-key` or `example.com/db.apiKey`. */
const splitWords = (name: string): string[] =>
  (name.slice(name.lastIndexOf("/") + 1).match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])/g) ?? []).map((word) =>
    word.toLowerCase(),
  );

const isSecretWord = (word: string, index: number, words: string[]): boolean =>
  secretWord.test(word) && !ordinaryKey.test(`${words[index - 1] ?? ""}${word}`);

/**
 * Reports whether the name of a member, variable, option or header is that of a secret: it contains a word such as
 * `token`, and its last word is not one that makes it a reference, as in `tokenPath`. A secret id, as of Vault's
 * AppRole, is a secret itself.
 */
export const isSecretName = (name: string): boolean => {
  if (!containsSecretWord.test(name)) return false;
  const words = splitWords(name);
  const [last = ""] = words.slice(-1);
  return words.some(isSecretWord) && (!referringWord.test(last) || /secret-?ids?$/.test(words.slice(-2).join("-")));
};

/** Reports whether a number with this name is a secret, such as `pin`, but not `maxTokens` or `keySize`. */
export const isSecretNumberName = (name: string): boolean =>
  isSecretName(name) && !isBareKey(name) && secretWord.test(splitWords(name).at(-1) ?? "") && !name.endsWith("s");

/** Reports whether a name is only the word key. Its value may be a secret or a name, which depends on the place. */
export const isBareKey = (name: string): boolean => /^keys?$/i.test(name);

export const isSecretVariable = (name: string): boolean =>
  isSecretName(name) || /pass|pwd|token|secret|credential|auth|key|salt|private|cookie|dsn/i.test(name);

/** Reports whether the value of a name is an identifier, as in `podUID`. */
export const isIdentifierName = (name: string): boolean =>
  /^(?:(?:gu|uu|u)?ids?|handle)$/.test(splitWords(name).at(-1) ?? "");

/** Reports whether the value of a name is a checksum, a commit or a similar id, as in `imageDigest`, `containerID`. */
export const isChecksumName = (name: string): boolean =>
  /(?:container|image|machine)-?id$/i.test(name) ||
  splitWords(name.replaceAll("/", "-")).some((word) =>
    /^(?:sha|hash|digest|checksum|commit|revision|version|tag|fingerprint)s?$/.test(word),
  );
