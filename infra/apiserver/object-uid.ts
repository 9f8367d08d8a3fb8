import { hash } from "node:crypto";

/** What the uid of a created object is made from. */
interface ObjectIdentity {
  apiVersion?: string;
  kind?: string;
  namespace?: string | undefined;
  name?: string | undefined;
}

/** Returns 32 bytes that look random and are the same in each run; each `block` of an object has other bytes. */
export const computeRandomBytes = ({ apiVersion, kind, namespace, name }: ObjectIdentity, block: number): Buffer =>
  hash("sha256", JSON.stringify([apiVersion, kind, namespace, name, block]), "buffer");

/**
 * Returns the uid of a created object, in the form of a random UUID. An API server draws a random uid; here, an object
 * has the same uid in each run, because messages may contain it, and a message is compared with those of earlier runs.
 */
export const computeUid = (identity: ObjectIdentity): string => {
  const bytes = computeRandomBytes(identity, 0).subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x40, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
};
