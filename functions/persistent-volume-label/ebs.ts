import { Failure } from "postern/failure";
import type { AwsRequest, HttpsResponse } from "postern/needs";

/** The zone of an EBS volume; or `mistake`, an error of the volume's author, in upstream's words. */
export type VolumeZone = { zone: string } | { mistake: string };

/** The codes of EC2 errors that are mistakes of the volume's author: no retry and no more permissions would help. */
const mistakes = /^(InvalidVolume\.|InvalidVolumeID\.|InvalidParameter)/;

/** The most characters of a volume's id. A longer text isn't sent to EC2. */
const longestId = 128;

/** Returns the zone that EC2 reports for a volume; a mistake if the volume doesn't exist. */
export const findVolumeZone = async (
  volumeID: string,
  region: string,
  describe: (request: AwsRequest) => Promise<HttpsResponse>,
): Promise<VolumeZone> => {
  const id = parseVolumeId(volumeID);
  if (id === undefined || id.length > longestId)
    return { mistake: `Invalid format for AWS volume (${volumeID.slice(0, longestId)})` };

  const { status, body } = await describe({ region, parameters: { "VolumeId.1": id } });
  if (status !== 200) {
    const [code, message] = [readElements("Code", body)[0] ?? "", readElements("Message", body)[0] ?? ""];
    if (status === 400 && mistakes.test(code)) return { mistake: `${code}: ${message}` };
    throw new Failure(503, `EC2 did not return the zone of volume "${id}": it answered ${status}${code && ` ${code}`}`);
  }
  // EC2's answer has exactly one element `availabilityZone` per volume.
  const [zone, ...more] = readElements("availabilityZone", body);
  if (zone === undefined) return { mistake: "no volumes found" };
  if (more.length > 0) return { mistake: "multiple volumes found" };
  return zone === "" ? { mistake: `volume did not have AZ information: ${JSON.stringify(id)}` } : { zone };
};

/** Parses `vol-…`, `aws:///vol-…` or `aws://zone/vol-…`. Ignores the zone, as upstream does. */
const parseVolumeId = (volumeID: string): string | undefined => {
  const prefix = "aws://";
  const address = volumeID.startsWith(prefix) ? volumeID : `${prefix}/${volumeID}`;
  const path = address.slice(prefix.length).split("/").slice(1);
  const [id = "", ...more] = path.filter((part) => part !== "");
  return more.length === 0 && id.startsWith("vol-") ? id : undefined;
};

/** Returns the texts of all elements with a tag in EC2's XML. A text ends at `<`, because EC2 escapes `<` in values. */
const readElements = (tag: string, xml: string): string[] =>
  xml
    .split(`<${tag}>`)
    .slice(1)
    .map((rest) => rest.slice(0, Math.max(0, rest.indexOf("<"))).replace(/&(lt|gt|amp|quot|apos);/g, unescapeEntity));

const unescapeEntity = (_: string, name: string) => ({ lt: "<", gt: ">", amp: "&", quot: '"' })[name] ?? "'";
