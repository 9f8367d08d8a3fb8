import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { evaluateRule } from "#lib/core/evaluation.ts";
import { Failure } from "#lib/failure.ts";
import type { AwsAction, Capabilities } from "#lib/needs.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import persistentVolumeLabel from "../../functions/persistent-volume-label/rule.ts";
import { applyOutcomePatch } from "../../infra/catalogue/case-differences.ts";
import { needs } from "../parts.ts";
import { type Moto, startMoto } from "./moto.ts";

const region = "us-east-1";

/** Evaluates the rule for a volume with this id. Returns the labels that the rule sets, or the message of a denial. */
const evaluateVolume = async (volumeID: string, capabilities: Capabilities) => {
  const object = { metadata: { name: "a" }, spec: { awsElasticBlockStore: { volumeID } } };
  const request: AdmissionRequest = {
    uid: "u",
    kind: { group: "", version: "v1", kind: "PersistentVolume" },
    resource: { group: "", version: "v1", resource: "persistentvolumes" },
    name: "a",
    operation: "CREATE",
    userInfo: {},
    object,
  };
  const { outcome } = await evaluateRule(persistentVolumeLabel, "mutate", request, {
    name: "persistent-volume-label",
    mode: "enforce",
    settings: { region, topologyLabels: false },
    now: new Date(),
    capabilities,
  });
  return outcome.status?.message ?? Object(applyOutcomePatch(object, outcome)).metadata.labels;
};
const buildDenial = (volumeID: string) =>
  `persistentvolumes "a" is forbidden: error querying AWS EBS volume ${volumeID}: `;

describe("the rule persistent-volume-label", () => {
  const answers: [status: number, code: string, sentence: string][] = [
    [403, "UnauthorizedOperation", "answered 403 UnauthorizedOperation"],
    [401, "AuthFailure", "answered 401 AuthFailure"],
    [400, "RequestExpired", "answered 400 RequestExpired"],
    [503, "RequestLimitExceeded", "answered 503 RequestLimitExceeded"],
  ];
  for (const [status, code, sentence] of answers)
    it(`the rule fails if EC2 ${sentence}`, async () => {
      const body = `<Response><Errors><Error><Code>${code}</Code><Message>no</Message></Error></Errors></Response>`;
      const capabilities = createRecordedCapabilities({ aws: [{ answer: { status, body } } as never] });
      const failure = new Failure(503, `EC2 did not return the zone of volume "vol-1": it ${sentence}`);
      await assert.rejects(evaluateVolume("vol-1", capabilities), failure);
    });
  it("the rule refuses, without a call to EC2, a string that is longer than an id", async () => {
    const longId = `vol-${"a".repeat(100_000)}`;
    assert.ok(
      String(await evaluateVolume(longId, createRecordedCapabilities({}))).endsWith(
        `Invalid format for AWS volume (${longId.slice(0, 128)})`,
      ),
    );
  });
});

describe("the rule persistent-volume-label, with moto's EC2", await needs("moto"), () => {
  let moto: Moto;
  /** Opens the capabilities for one review, which may take 30 seconds. */
  const openCapabilities = () => createLiveCapabilities({})("local", 30_000);
  const call = async (action: AwsAction, parameters: Record<string, string>, callRegion = region): Promise<string> => {
    const { status, body } = await openCapabilities().aws(action, { region: callRegion, parameters });
    assert.equal(status, 200, body);
    return body;
  };
  const createVolume = async (zone: string, callRegion = region): Promise<string> => {
    const response = await call("ec2:CreateVolume", { AvailabilityZone: zone, Size: "1" }, callRegion);
    return /<volumeId>(vol-[^<]+)</.exec(response)?.[1] ?? "";
  };

  before(async () => {
    moto = await startMoto("AWS_ENDPOINT_URL_EC2");
  });
  after(() => moto.stop());

  it("the rule labels a volume with its region and zone", async () => {
    const labels = {
      "failure-domain.beta.kubernetes.io/region": region,
      "failure-domain.beta.kubernetes.io/zone": `${region}b`,
    };
    const id = await createVolume(`${region}b`);
    assert.match(id, /^vol-/);
    assert.deepEqual(await evaluateVolume(id, openCapabilities()), labels);
    assert.deepEqual(await evaluateVolume(`aws:///${id}`, openCapabilities()), labels);
    assert.deepEqual(await evaluateVolume(`aws://${region}b/${id}`, openCapabilities()), labels);
  });
  it("the rule ignores XML in the tags of the volume", async () => {
    const id = await createVolume(`${region}a`);
    const xml = "</value><availabilityZone>us-east-1f</availabilityZone>";
    await call("ec2:CreateTags", { "ResourceId.1": id, "Tag.1.Key": xml, "Tag.1.Value": xml });
    assert.deepEqual(await evaluateVolume(id, openCapabilities()), {
      "failure-domain.beta.kubernetes.io/region": region,
      "failure-domain.beta.kubernetes.io/zone": `${region}a`,
    });
  });
  it("the rule finds a volume that is attached to an instance", async () => {
    const placement = { "Placement.AvailabilityZone": `${region}a`, ImageId: "ami-12c6146b" };
    const parameters = { ...placement, MinCount: "1", MaxCount: "1" };
    const [, instance = ""] = /<instanceId>([^<]+)</.exec(await call("ec2:RunInstances", parameters)) ?? [];
    const id = await createVolume(`${region}a`);
    await call("ec2:AttachVolume", { VolumeId: id, InstanceId: instance, Device: "/dev/sdh" });
    assert.equal(
      Object(await evaluateVolume(id, openCapabilities()))["failure-domain.beta.kubernetes.io/zone"],
      `${region}a`,
    );
  });
  it("the rule refuses a volume that doesn't exist or is in another region", async () => {
    const elsewhere = await createVolume("eu-west-1a", "eu-west-1");
    for (const id of ["vol-0123456789abcdef0", elsewhere])
      assert.ok(
        String(await evaluateVolume(id, openCapabilities())).startsWith(
          `${buildDenial(id)}InvalidVolume.NotFound: The volume '`,
        ),
      );
  });
});
