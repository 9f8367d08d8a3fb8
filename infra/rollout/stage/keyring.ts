import type { StageParameterStore } from "../../aws/parameters.ts";
import { Complaint } from "../../cli/complaint.ts";
import { createSigner, makeSigningKey, type WebhookUrlSigner } from "../../keys/keys.ts";

/** The keys that sign a stage's URLs: one, or two while the first is being replaced. */
export interface Keyring {
  /** The public keys in the format of the variable POSTERN_KEYS. */
  publicKeys: string;
  /** The signers of all the stage's URL keys, the older first. */
  signers: WebhookUrlSigner[];
  /** The signer of new URLs. */
  current: WebhookUrlSigner;
}

/** The public keys of a stage. Releases record them for callers that may not read the private keys. */
export interface UrlPublicKeys {
  /** The public keys in the format of the variable POSTERN_KEYS. */
  accepted: string;
  /** The public key of the key that signs new URLs. */
  signer: string;
}

export const toPublicKeys = ({ publicKeys, current }: Keyring): UrlPublicKeys => ({
  accepted: publicKeys,
  signer: current.publicKey,
});

/** A stage's signing keys as they are stored in SSM: keys in PEM, and the index of the key that signs. */
interface StoredKeys {
  keys: string[];
  current: number;
}

/** The SSM parameter with the keys is /postern/STAGE/keys. */
const parameterName = "keys";

export const readKeyring = async (parameters: StageParameterStore): Promise<Keyring | undefined> => {
  const text = await parameters.read(parameterName);
  return text === undefined ? undefined : toKeyring(parseKeys(text));
};

/** Returns the keys of a stage. Creates a key if there is none; if two commands do so at once, the first key stays. */
export const readOrCreateKeyring = async (parameters: StageParameterStore): Promise<Keyring> => {
  const present = await readKeyring(parameters);
  if (present) return present;
  const newKeys: StoredKeys = { keys: [makeSigningKey()], current: 0 };
  if (await parameters.create(parameterName, JSON.stringify(newKeys))) return toKeyring(newKeys);
  return readOrCreateKeyring(parameters);
};

/** Adds a second key. The first key still signs new URLs, until `selectNewestKeyForNewUrls` selects the second. */
export const addSecondSigningKey = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys, current }) => ({
    keys: keys.length > 1 ? keys : [...keys, makeSigningKey()],
    current,
  }));

/** Makes the newest key of the stage the one that signs new URLs. */
export const selectNewestKeyForNewUrls = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys }) => ({ keys, current: keys.length - 1 }));

/** Deletes all keys of the stage except the newest, which then signs URLs. */
export const deleteAllKeysButNewest = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys }) => ({ keys: keys.slice(-1), current: 0 }));

/** Changes the stored keys of a stage by the function `edit`, and returns the changed keyring. */
const changeKeys = async (
  parameters: StageParameterStore,
  edit: (before: StoredKeys) => StoredKeys,
): Promise<Keyring> => {
  const text = await parameters.read(parameterName);
  if (text === undefined) throw new Complaint("this stage has no keys; postern deploy creates them", 1);
  const before = parseKeys(text);
  // Throws if the stored keys are damaged.
  toKeyring(before);
  const after = edit(before);
  if (JSON.stringify(after) !== JSON.stringify(before)) await parameters.write(parameterName, JSON.stringify(after));
  return toKeyring(after);
};

/** Returns the stage's keys from their parameter. A damaged parameter is a Complaint. */
const parseKeys = (text: string): StoredKeys => {
  try {
    const { keys, current } = JSON.parse(text);
    const isValid = Array.isArray(keys) && keys.length >= 1 && keys.length <= 2 && keys[current] !== undefined;
    if (isValid) return { keys: keys.map(String), current };
  } catch {
    // The error of JSON.parse is dropped: it may quote the text of the keys, which is secret.
  }
  throw buildDamagedComplaint();
};

const toKeyring = ({ keys, current }: StoredKeys): Keyring => {
  const signers = keys.flatMap((key) => parseSigner(key) ?? []);
  const chosen = signers[current];
  if (chosen === undefined || signers.length < keys.length) throw buildDamagedComplaint();
  return { publicKeys: signers.map(({ publicKey }) => publicKey).join(","), signers, current: chosen };
};

const parseSigner = (key: string): WebhookUrlSigner | undefined => {
  try {
    return createSigner(key);
  } catch {
    return undefined;
  }
};

const buildDamagedComplaint = () =>
  new Complaint(
    "the keys of this stage can't be read: their SSM parameter is not in the format that postern deploy writes; restore an earlier version of it",
    3, // the exit code of all commands that can't read what they need to know
  );
