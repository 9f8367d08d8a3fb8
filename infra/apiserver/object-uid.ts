import { hash } from "node:crypto";

/** What the uid of a created object is made from. */
interface ObjectIdentity {
  apiVersion?: string;
  kind?: string;
  namespace?: string | undefined;
  name?: string | undefined;
}

/** Returns 32 bytes that look random and are the same in each run; each `block` of an object has other bytes. */
export const computeRandomBytes = (identity: ObjectIdentity, block: number): Buffer =>
  Buffer.from(computeRandomDigits(identity, block), "hex");

const computeRandomDigits = ({ apiVersion, kind, namespace, name }: ObjectIdentity, block: number): string =>
  hash("sha256", JSON.stringify([apiVersion, kind, namespace, name, block]));

/**
 * Returns the uid of a created object, in the form of a random UUID. An API server draws a random uid; here, an object
 * has the same uid in each run, because messages may contain it, and a message is compared with those of earlier runs.
 */
export const computeUid = (identity: ObjectIdentity): string => {
  const digits = computeRandomDigits(identity, 0);
  const part = (from: number, to: number) => digits.slice(from, to);
  // The third part begins with the version, 4. The first digit of the fourth part has the variant: it is 8, 9, a or b.
  const variant = "89ab"[Number.parseInt(part(16, 17), 16) % 4];
  return `${part(0, 8)}-${part(8, 12)}-4${part(13, 16)}-${variant}${part(17, 20)}-${part(20, 32)}`;
};
