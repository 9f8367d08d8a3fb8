import { isUtf8 } from "node:buffer";

/** What stands in a secret's place; in base64 it is the same word. */
export const word = "redacted";

/** Names whose value is a secret wherever they stand: in an object, in a text, among headers and parameters. */
const names = [
  ...["token", "passw(?:or)?d", "passphrase", "passcode", "pwd", "(?<![a-z])pass", "credentials?"],
  ...["(?:access|account|api|auth|encryption|hmac|master|private|secret|signing|ssh|storage)[-_]?key"],
  ...[
    "(?:api|app|client|consumer|hmac|jwt|oauth|session|shared|signing|webhook)[-_.]?secret",
    "secret[-_]?(?:string|binary)",
  ],
  ...["client-key-data", "authorization", "cookie", "x-amz-signature"],
].join("|");
const anyName = new RegExp(`${names}|secret|pass|_?auth|key`, "i");
/** Of a file as well: a key, or a store of them. */
const secretName = new RegExp(
  `(?:${names}|\\.(?:key|jks|p12|pfx)|^id_(?:rsa|dsa|ecdsa|ed25519)|^[._]?(?:netrc|pgpass))$`,
  "i",
);
/** Of variables in an environment, whose names say more. */
const secretVariable = /pass|pwd|token|secret|credential|(?:^|_)auth$|_?key$|api_?key|private_?key|access_?key/i;

/** As variables are called, also where a ConfigMap or a chart's values have them. */
const variable = /^(?:[A-Z][A-Z0-9]*_[A-Z0-9_]+|SECRET)$/;

/** Whether what has this name is a secret. */
export const isSecretName = (name: string): boolean =>
  secretName.test(name) || (variable.test(name) && secretVariable.test(name));

/** Whether a variable of this name, in an environment, or a header holds a secret. */
export const isSecretVariable = (name: string): boolean => secretVariable.test(name) || secretName.test(name);

/** Whether this is an option whose value, a secret, is the next argument. */
export const isSecretOption = (argument: string): boolean => option.test(argument);

/** Whether a Secret of this type is meant, though nothing says that it is one: a template of Secrets. */
export const isSecretType = (type: string): boolean => /^(?:Opaque$|kubernetes\.io\/|helm\.sh\/release)/.test(type);

// Each begins with a text of its own, and reads on from there without looking back: a text may be as long as a review.
const privateKey =
  /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)/g;
const packed = /LS0tLS1CRUdJTi[\w+/=-]*/g;
const bearer = /\b(bearer(?:[ \t]{1,8}|%20|\+))[^\s"'\\,]+/gi;
const userInAddress = /:\/\/[^\s/"'\\]+@/g;
/** Without a scheme, as Go's drivers for MySQL have it. */
const userInSource = /:[^\s:@"'\\]+@(?=(?:tcp|unix)\()/g;
const hook = /(hooks\.slack\.com\/(?:services|triggers|workflows)\/)[\w/-]+/g;
/** What may be a login in base64, behind a word that says so. */
const login =
  /((?:\bbasic(?:[ \t]{1,8}|%20|\+)|(?<![a-z\d])auth["'\\]{0,4}[ \t]{0,8}[:=][ \t]{0,8}["'\\]{0,4}))([\w+/-]{4,}={0,2})/gi;
const signature = /([?&](?:sig|signature|key|code)=)[^\s"'\\&]+/gi;
/**
 * Tokens whose first letters say whose they are: GitHub's, GitLab's, Slack's, Stripe's, Google's, npm's, Vault's, Docker's
 * and age's.
 */
const issued =
  /(?:gh[opsru]_|github_pat_|glpat-|xapp-|xox[abeoprs]-|[rs]k_live_|whsec_|AIza|ya29\.|npm_|hv[bs]\.|dckr_pat_|AGE-SECRET-KEY-1)[\w-]{16,}/g;
/** As JSON, YAML, a shell or a form says it: a colon alone stands before an image's tag, too. */
const sign = `(?:["'\\\\]{1,4}[ \\t]{0,8}:|[ \\t]{0,8}:(?=[ \\t])|["'\\\\]{0,4}[ \\t]{0,8}:?=>?)[ \\t]{0,8}`;
/** In quotes, on the lines below, or one word; in YAML, behind an anchor or a tag. */
const given = `(?:[&!][\\w!-]{0,64}[ \\t]{1,8})?(?:${[
  `"(?:[^"\\\\\\n]|\\\\.){0,4096}"|'(?:[^'\\n]|''){0,4096}'`,
  "[|>][-+\\d]{0,3}[ \\t]{0,8}(?:\\n[ \\t]+[^\\n]*)+",
  `["'\\\\]{0,4}(?:(?:basic|bearer)[ \\t]{1,8})?[^\\s"'\\\\&,;{}[\\]]+`,
].join("|")})`;
const assigned = new RegExp(`((?:${names})${sign})${given}`, "gi");
/** Only where a line begins, as in TOML and properties: in messages, it is a kind of volume. */
const secretAssigned = new RegExp(
  `((?:^[ \\t]{0,64}(?:[\\w-]{1,64}\\.){0,8}secret[ \\t]{0,8}=|\\n[ \\t]{0,256}secret:(?=[ \\t]))[ \\t]{0,8})${given}`,
  "gim",
);
const variableAssigned = new RegExp(
  `((?<![\\w.-])[A-Z0-9_]{0,64}(?:PASS|PWD|TOKEN|SECRET|CREDENTIAL|_AUTH(?![A-Z0-9_])|KEY(?![A-Z0-9_]))[A-Z0-9_]{0,64}${sign})${given}`,
  "g",
);
/** A variable, a header or a setting that says its name first: in YAML, in XML, in JSON with something around it. */
const namedFirst = new RegExp(
  [
    `((?<![\\w.-])(?:key|name)["'\\\\]{0,4}[ \\t]{0,8}[:=][ \\t]{0,8}["'\\\\]{0,4}[\\w.-]{0,64}`,
    "(?:pass|pwd|token|secret|credential|_auth(?![\\w.-])|[_.-]key(?![\\w.-])|apikey|authorization|cookie)[\\w.-]{0,64}",
    `["'\\\\]{0,4},?\\s{0,64}["'\\\\]{0,4}value["'\\\\]{0,4}[ \\t]{0,8}[:=][ \\t]{0,8})(?:\\w[^\\n"'\\\\,{}]*|${given})`,
  ].join(""),
  "gi",
);
/** As YAML has it, in several words to the end of the line. */
const inWords = new RegExp(
  `^([ \\t]*(?:-[ \\t]+)?[\\w.-]*(?:${names})[ \\t]*:[ \\t]+)[^\\s"'|>&*!{[\\\\#][^\\n]*`,
  "gim",
);
const option = new RegExp(`^--?[\\w.-]*(?:${names})$`, "i");
/** In a line, or in a list. */
const following = new RegExp(
  `((?<![\\w.-])--[\\w.-]*(?:${names})(?:[ \\t]+|["'\\\\]{0,4}[ \\t]{0,8}(?:,\\s{0,64}|\\n[ \\t]{0,64}-[ \\t]{1,8})(?!["'\\\\]{0,4}-)))${given}`,
  "gi",
);
const element = new RegExp(`((?:${names})>)[^<>\\n]+(?=</)`, "gi");
const dotted = /[\w.-]+/g;
/** As YAML, or as JSON with something around it. */
const manifest = /\bkind["'\\]{0,8}[ \t]{0,8}:[ \t]{0,8}["'\\]{0,8}Secret(?:List)?(?=["'\\\s,}]|$)/;

/** A text without the secrets that have a shape of their own, wherever in it they stand. */
export const withoutShapes = (text: string): string =>
  manifest.test(text)
    ? word
    : withoutGiven(withoutKeys(text))
        .replace(signature, `$1${word}`)
        .replace(issued, word)
        .replace(bearer, `$1${word}`)
        .replace(login, (found, before: string, given: string) => (isLogin(given) ? `${before}${loginLess}` : found))
        .replace(userInAddress, `://${word}@`)
        .replace(userInSource, `:${word}@`)
        .replace(hook, `$1${word}`)
        .replace(dotted, withoutTokens);

/** Keys go first, and whole: their first line may be what a name is given. */
const withoutKeys = (text: string): string =>
  text
    .replace(privateKey, `-----BEGIN PRIVATE KEY-----\n${word}\n-----END PRIVATE KEY-----`)
    .replace(packed, (found) => (Buffer.from(found, "base64").includes("PRIVATE KEY") ? encoded : found));

/** Without what is given to a name; most texts have none of the names. */
const withoutGiven = (text: string): string =>
  anyName.test(text)
    ? text
        .replace(namedFirst, `$1${word}`)
        .replace(inWords, `$1${word}`)
        .replace(assigned, `$1${word}`)
        .replace(secretAssigned, `$1${word}`)
        .replace(variableAssigned, `$1${word}`)
        .replace(following, `$1${word}`)
        .replace(element, `$1${word}`)
    : text;

/** In base64, as a Secret holds it. */
export const encoded = Buffer.from(word).toString("base64");

/** Whether this is a user and a password, in base64. */
export const isLogin = (text: string): boolean => {
  const bytes = Buffer.from(text, "base64");
  return isUtf8(bytes) && /^[^:\p{Cc}]*:[^\p{Cc}]*$/u.test(bytes.toString());
};

/** In the place of one. */
export const loginLess = Buffer.from(`${word}:${word}`).toString("base64");

/** A JWT is three parts or more with dots between, the first of which begins as `{"` does in base64. */
const withoutTokens = (found: string): string => {
  const begin = found.indexOf("eyJ");
  if (begin === -1) return found;
  const [, second] = found.slice(begin).split(".", 3);
  return second !== undefined && found.indexOf(".", found.indexOf(".", begin) + 1) !== -1
    ? found.slice(0, begin) + word
    : found;
};
