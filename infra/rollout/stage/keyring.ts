import type { StageParameterStore } from "../../aws/parameters.ts";
import { Complaint } from "../../cli/complaint.ts";
import { createSigner, makeSigningKey, type WebhookUrlSigner } from "../../keys/keys.ts";

/** The keys that sign a stage's URLs: one, or two while the first is being replaced. */
export interface Keyring {
  /** The public keys in the format of the variable POSTERN_KEYS. */
  publicKeys: string;
  /** The signers of all the stage's URL keys, the older first. */
  signers: WebhookUrlSigner[];
  current: WebhookUrlSigner;
}

/** The public halves of a stage's keys. Releases record them for callers that may not read the private halves. */
export interface UrlPublicKeys {
  /** The public keys in the format of the variable POSTERN_KEYS. */
  accepted: string;
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

const name = "keys";

export const readKeyring = async (parameters: StageParameterStore): Promise<Keyring | undefined> => {
  const text = await parameters.read(name);
  return text === undefined ? undefined : toKeyring(parseKeys(text));
};

/** Returns the keys of a stage, and creates them if there are none. If two commands create keys, the first wins. */
export const readOrCreateKeyring = async (parameters: StageParameterStore): Promise<Keyring> => {
  const present = await readKeyring(parameters);
  if (present) return present;
  const newKeys: StoredKeys = { keys: [makeSigningKey()], current: 0 };
  if (await parameters.create(name, JSON.stringify(newKeys))) return toKeyring(newKeys);
  return readOrCreateKeyring(parameters);
};

/** Adds a second key that functions accept. URLs are signed with the first until `selectNewestKeyForNewUrls`. */
export const addSecondSigningKey = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys, current }) => ({
    keys: keys.length > 1 ? keys : [...keys, makeSigningKey()],
    current,
  }));

/** Makes the newest key of the stage the one that signs new URLs. */
export const selectNewestKeyForNewUrls = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys }) => ({ keys, current: keys.length - 1 }));

/** Deletes all keys of the stage but the newest, which then signs URLs. */
export const deleteAllKeysButNewest = (parameters: StageParameterStore) =>
  changeKeys(parameters, ({ keys }) => ({ keys: keys.slice(-1), current: 0 }));

const changeKeys = async (
  parameters: StageParameterStore,
  edit: (kept: StoredKeys) => StoredKeys,
): Promise<Keyring> => {
  const text = await parameters.read(name);
  if (text === undefined) throw new Complaint("this stage has no keys; postern deploy creates them", 1);
  const before = parseKeys(text);
  // Throws if the stored keys are damaged.
  toKeyring(before);
  const after = edit(before);
  if (JSON.stringify(after) !== JSON.stringify(before)) await parameters.write(name, JSON.stringify(after));
  return toKeyring(after);
};

const parseKeys = (text: string): StoredKeys => {
  try {
    const { keys, current } = JSON.parse(text);
    const isFit = Array.isArray(keys) && keys.length >= 1 && keys.length <= 2 && keys[current] !== undefined;
    if (isFit) return { keys: keys.map(String), current };
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
    3,
  );
