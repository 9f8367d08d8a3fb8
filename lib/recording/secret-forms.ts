import { isBareKey, isChecksumName, isIdentifierName, isSecretName } from "./secret-names.ts";

// Recognizes secrets by the form of a text.

/** Private keys, JSON Web Tokens, users and passwords in URLs, headers, options and configurations; webhook URLs. */
const secretForm = new RegExp(
  [
    "-----BEGIN [A-Z ]*PRIVATE KEY",
    "AGE-SECRET-KEY-",
    String.raw`\beyJ[\w-]{8,}\.`,
    String.raw`:\/\/[^\s/@]+@`,
    String.raw`(?:^|[\s"'=,;])[^\s/:@"'=]{1,64}:[^\s/:@"']{1,99}@(?!sha\d)[\w.-]`,
    String.raw`\b(?:bearer|basic|identified\s+by)\s+\S`,
    String.raw`\b(?:password|secret|psk|eap)\s{1,9}\\?["']`,
    String.raw`\blogin\s{1,9}\S{1,99}\s{1,9}password\s`,
    String.raw`(?:^|[\s"'=])(?:-u|--user)[\s=]{1,9}[^\s:]{1,99}:(?!\d+\b)\S`,
    String.raw`[?&](?:key|code|sig|state)=[^\s&=]`,
    // The addresses of chat webhooks are secrets.
    String.raw`(?:^|[^\w.-])hooks?\.[\w.-]{1,99}/\S`,
    String.raw`//[^\s/]{1,99}/(?:[\w.-]{1,40}/)?(?:web)?hooks?/\S`,
  ].join("|"),
  "i",
);

/** The beginnings of tokens of GitHub, GitLab, Slack, Stripe, Vault and others. */
const tokenStart =
  /(?:^|[^A-Za-z0-9])(?:gh[oprsu]_|github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|ffct|oas|wt)-|xox[a-z]-|xapp-|xkeysib-|[prs]k_(?:live|test)_|whsec_|hv[brs]\.|dckr_pat_|do[op]_v1_|shp[a-z]{2}_|sntrys_|glsa_|AKIA|AIza|ya29\.)[\w./+=-]{6,}/;

/** Parts of texts that look random, but are no secrets. */
const ordinaryPart = new RegExp(
  [
    // Digests of images, and ids of AWS.
    String.raw`\b(?:md5|sha\d{1,3}):[0-9a-f]{32,128}\b`,
    String.raw`\b[a-z]{1,8}-[0-9a-f]{17}\b`,
    String.raw`\bAWSReservedSSO_[A-Za-z0-9-]{1,40}_[0-9a-f]{16}\b`,
    // Volumes are named after the UID of their claim.
    String.raw`\bpvc-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`,
    // Certificates, and public keys.
    String.raw`-----BEGIN (?:CERTIFICATE(?: REQUEST)?|(?:RSA |EC )?PUBLIC KEY)-----[\w+/=\s]*`,
    String.raw`\bssh-(?:rsa|ed25519) AAAA[\w+/=]*`,
  ].join("|"),
  "g",
);
const uuid = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi;
const digest = /\b(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})\b/gi;

/**
 * Reports whether a text seems to contain a secret. `names` has the names of the text, such as its key. A UUID is no
 * secret if a name is that of an identifier, and a digest is none if a name is that of a checksum.
 */
export const seemsSecret = (text: string, names: readonly string[]): boolean => {
  const decoded = decodeBase64(text);
  // The base64 of any PEM file seems random. So of such a file, the decoded text is tested: it shows whether the file
  // is only a public certificate.
  return (
    [text, decoded].some((form) => secretForm.test(form) || tokenStart.test(form) || assignsSecret(form)) ||
    seemsRandom(decoded.startsWith("-----BEGIN ") ? decoded : text, names)
  );
};

/** Reports whether a text contains a random token that isn't usual for one of these names. */
const seemsRandom = (text: string, names: readonly string[]): boolean => {
  if (text.length < 12) return false;
  let rest = text.replace(ordinaryPart, " ");
  if (names.some(isIdentifierName)) rest = rest.replace(uuid, " ");
  if (names.some(isChecksumName)) rest = rest.replace(digest, " ");
  return rest.search(uuid) >= 0 || isRandom(rest);
};

/**
 * Reports whether a name, a label or another short text begins like a known token, or seems random. `names` has the key
 * of the text, if it has one: a UUID is no token if the key is named like an identifier (`id`), and a digest is none if
 * the key is named like a checksum.
 */
export const looksLikeToken = (text: string, names: readonly string[]): boolean =>
  tokenStart.test(text) || seemsRandom(text, names);

const nameInText = /(-{0,2})([A-Za-z_][\w.-]*)/g;
// Each of these patterns is tested at the end of a name. It matches one way in which a text gives a value to the name.
/** An assignment, such as `: "abc"` or `= abc`, but no comparison (`==`, `=~`). */
const assigned = /(?:\\{0,3}["'])?\]?\s{0,9}(?::|=>|=(?![=~]))\s*(?!(?:true|false)\b)\S/y;
/**
 * The value of an option, as in `--token abc` or `"--token", "abc"` (in JSON, its quotes have backslashes), unless it
 * is the path of a file, another option or a boolean: `(?!…)` excludes these. A word that begins with a slash is a path
 * if it has no `+` or `=`, which base64 may have. The upper limits, such as 999, keep the search fast in any text.
 */
const optionValue =
  /\\{0,3}["']?(?:\s{0,9},\s{0,9}["']?|[\s=]{1,9})(?!\/[\w.-]{1,99}[\w./-]{0,999}(?![\w./+=-])|-|(?:true|false)\b)\S/y;
/** The content of an XML element, as in `<token>abc`. */
const content = /[^<>]{0,99}>[^<\s]/y;
/** The next argument of a call, as in `set("token", "abc")`. */
const nextArgument = /["']\s{0,9},\s{0,9}["'][^"']/y;
/** A single value that fills the rest of a line, as in `token abc`. */
const restOfLine = /[ \t]{1,9}\S{1,999}[ \t;]{0,9}(?:\n|$)/y;

/** Reports whether a text assigns a value to a name of a secret, as in a shell, JSON, YAML, XML or a configuration. */
const assignsSecret = (text: string): boolean => {
  const hasLines = text.includes("\n");
  for (const { 0: matched, 1: dashes = "", 2: name = "", index } of text.matchAll(nameInText)) {
    // The bare word `key` is the name of a secret only in `KEY=`.
    const isBare = dashes === "" && /^(?:.*\.)?keys?$/i.test(name);
    const isKeyVariable = name === "KEY" && text.charAt(index + 3) === "=";
    if (!isSecretName(name) || (isBare && !isKeyVariable)) continue;
    const isFollowedBy = (pattern: RegExp): boolean => {
      pattern.lastIndex = index + matched.length;
      return pattern.test(text);
    };
    const before = text.slice(Math.max(0, index - 99), index);
    if (
      // token: abc, or --token abc
      isFollowedBy(dashes === "" ? assigned : optionValue) ||
      // <token>abc
      (/<(?:[\w-]{1,99}:)?$/.test(before) && isFollowedBy(content)) ||
      // set("token", "abc")
      (/\(\s?["']$/.test(before) && isFollowedBy(nextArgument)) ||
      // a line that is only: token abc
      (hasLines && /(?:^|\n)[ \t]*$/.test(before) && isFollowedBy(restOfLine))
    )
      return true;
  }
  return false;
};

/**
 * The pairs of letters that are usual in English words and in names of Kubernetes. In the text, the first letter of a
 * word is followed by the letters that can come after it: `keisu` stands for ke, ki, ks and ku.
 */
const usualPairs = new Set(
  `abcdfgiklmnprstuvwy baeilorsuy cacehiklorstuy dadegilmorsuy eabcdefgilmnpqrstvwxy faefilorstu gaeghilnorsu haeiortu
  iabcdefglmnoprstvxz je keisu ladeilostuvy mabeilmopsu nacdefgiklnoprstuv oabcdfgiklmnoprstuvwy paehiloprstu qu
  rabcdegiklmnoprstuvy sacehiklmopstuwy tacehilorstuy uabcdegilmnoprst vaeio waehinors xceipt yenpst ze`
    .split(/\s+/)
    .flatMap(([first, ...following]) => following.map((second) => `${first}${second}`)),
);

/**
 * Returns the fraction of pairs of characters that are unusual in words: a digit beside a letter, or a rare pair. The
 * limits to which it is compared are tested in test/named-secrets.test.ts.
 */
const computeOddity = (runs: readonly string[]): number => {
  let [pairs, odd] = [0, 0];
  for (const run of runs) {
    const hasLowerCase = /[a-z]/.test(run);
    for (let index = 1; index < run.length; index += 1) {
      odd += computePairOddity(run.slice(index - 1, index + 1), hasLowerCase);
      pairs += 1;
    }
  }
  return pairs === 0 ? 0 : odd / pairs;
};

/**
 * Returns how unusual two neighbouring characters are in words: 0, 0.5 or 1. `hasLowerCase` says whether the text
 * around the pair contains lower-case letters.
 */
const computePairOddity = (pair: string, hasLowerCase: boolean): number => {
  // A change of case, as in camelCase, counts half, whatever the letters are.
  if (/^[a-z][A-Z]$/.test(pair)) return 0.5;
  if (/^\d\d$/.test(pair) || usualPairs.has(pair.toLowerCase())) return 0;
  // Abbreviations in words, as in setHostnameAsFQDN, have rare pairs.
  return hasLowerCase && /^[A-Z]{2}$/.test(pair) ? 0.5 : 1;
};

/** Reports whether a text has at least 12 letters and digits that look random. Dashes may be between them. */
export const isRandom = (text: string): boolean =>
  // Repeated characters and alphabets, as in examples, don't count.
  hasRandomChunk(text.replace(/(\w)\1{4,}|abcdefgh\w{0,18}/g, "$1"));

/** Reports whether a text has a random token. Oddity is the fraction of pairs of letters that are unusual in words. */
const hasRandomChunk = (text: string): boolean =>
  (text.match(/[\w+=-]{12,}/g) ?? []).some((chunk) => isRandomChunk(chunk, /* minOddity */ 0.25)) ||
  // A token in base64 may contain slashes. Unlike a path, it consists mainly of odd runs, which look like no words.
  (text.match(/[\w+=/-]{20,}/g) ?? []).some(
    (chunk) =>
      chunk.includes("/") &&
      isRandomChunk(chunk, /* minOddity */ 0.35) &&
      findOddRuns(chunk).join("").length > chunk.length * 0.6,
  );

/**
 * Returns the runs of characters that are neither numbers nor words: those of letters and digits mixed, and those of
 * more than three letters whose case or whose pairs of letters are unusual in words.
 */
const findOddRuns = (chunk: string): string[] =>
  (chunk.match(/[A-Za-z0-9]+/g) ?? []).filter((run) =>
    /\d/.test(run) ? /\D/.test(run) : run.length > 3 && !(wordCase.test(run) && computeOddity([run]) <= maxWordOddity),
  );
/** The largest fraction of unusual pairs of letters that a word may have. */
const maxWordOddity = 0.2;
/** Matches the case of letters in words. */
const wordCase = /^(?:[A-Z]+|[A-Z]?[a-z]+(?:[A-Z][a-z]{2,})*)$/;

/** Reports whether a part of a text looks random, such as "x7Gq2LpZ9vTk4Rb". */
const isRandomChunk = (chunk: string, minOddity: number): boolean => {
  const oddRuns = findOddRuns(chunk);
  if (oddRuns.some(isRandomRun)) return true;
  const joined = oddRuns.join("");
  // Odd runs are neither words nor numbers. The generated name of a pod has one case and up to three of them, such as
  // 7d9f8b6c5 and x2x4z in web-7d9f8b6c5-x2x4z. So a text in one case needs more than three odd runs of more than three
  // characters. One with both upper and lower case needs only 15 odd characters.
  const hasEnoughOddRuns = hasBothCases(joined)
    ? joined.length >= 15
    : oddRuns.filter(({ length }) => length > 3).length > 3;
  return hasEnoughOddRuns && computeOddity(oddRuns) > minOddity;
};

/**
 * Reports whether a run of letters and digits looks random. `computeOddity` returns the fraction of its pairs of
 * characters that are unusual in words. Digits or both cases make a run suspicious, so a smaller fraction is then
 * enough. test/named-secrets.test.ts tests the limits with tokens and with ordinary texts.
 */
const isRandomRun = (run: string): boolean => {
  const [hasDigit, hasBoth] = [/\d/.test(run), hasBothCases(run)];
  if (run.length < 16) return run.length >= 12 && hasDigit && hasBoth && computeOddity([run]) >= 0.35;
  return (hasDigit && /^[\da-f]+$/i.test(run)) || computeOddity([run]) > (hasDigit || hasBoth ? 0.25 : 0.3);
};

const hasBothCases = (text: string): boolean => /[a-z]/.test(text) && /[A-Z]/.test(text);

/** Matches a text in a script, and the field to which it is assigned, if any. */
const textInScript = /((?:"[\w./-]{1,99}"|[\w$-]{1,99})\s{0,9}:\s{0,9})?("(?:[^"\\\n]|\\.)*")/g;

/** Replaces secret literals in a policy's script. Returns undefined if another place of the script has a secret. */
export const redactSecretsInScript = (
  script: string,
  getPlaceholder: (literal: string) => string,
): string | undefined => {
  const redacted = script.replace(textInScript, (matched, assignedTo = "", literal: string) => {
    const name = assignedTo.replace(/["\s:]/g, "");
    // A literal is a secret by the name to which it is assigned, or by its own form. The name `key` alone proves
    // nothing.
    const isSecret = (isSecretName(name) && !isBareKey(name)) || looksLikeToken(literal, [name]);
    return isSecret ? `${assignedTo}"${getPlaceholder(literal)}"` : matched;
  });
  return secretForm.test(redacted) ? undefined : redacted;
};

const decodeBase64 = (text: string): string =>
  text.length % 4 === 0 && /^[A-Za-z0-9+/]{16,}={0,2}$/.test(text) ? Buffer.from(text, "base64").toString() : "";
