// The process with the stand-ins for AWS and for clusters of `npm run bench -- --only fleet`. It prints their addresses
// as a line of JSON. Then it answers each line of its input, which is the name of a stage, with the sizes of the
// stage's releases in bytes. It ends when its input ends.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { S3 } from "@aws-sdk/client-s3";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { openAccount } from "./account.ts";
import type { EksCluster } from "./eks.ts";
import { openLightClusters } from "./light-clusters.ts";
import { findMoto } from "./tools.ts";

const write = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);

const run = async () => {
  const tool = findMoto();
  if ("missing" in tool) return write({ missing: tool.missing });
  const folder = await mkdtemp(join(tmpdir(), "postern-fleet-"));
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const [account, clusters] = await Promise.all([
    openAccount("eu-west-1", { isInProcess: true }),
    openLightClusters(certificate),
  ]);
  Object.assign(process.env, account.env);
  // An EKS cluster exists for every name.
  const eks = new Map<string, EksCluster>();
  account.clusters.get = (name) => {
    const cluster = eks.get(name) ?? { server: clusters.url, ca: certificate.ca, entries: new Map() };
    eks.set(name, cluster);
    return cluster;
  };
  const s3 = new S3({ forcePathStyle: true });
  const readReleaseBytes = async (stage: string): Promise<number[]> => {
    const stack = [...account.cloudformation.stacks.values()].find(({ name }) => name === `postern-${stage}`);
    const Bucket = stack?.resources.get("ServerlessDeploymentBucket")?.physical;
    const { Contents = [] } = await s3.listObjectsV2({ Bucket, Prefix: "releases/" });
    return Contents.map(({ Size = 0 }) => Size);
  };
  const lines = createInterface({ input: process.stdin });
  lines.on("close", async () => {
    await Promise.all([account.stop(), clusters.stop()]);
    await rm(folder, { recursive: true, force: true });
    process.exit();
  });
  write({ env: account.env, gatewayCa: account.ca, clusterCa: certificate.ca, apiServerUrl: clusters.url });
  for await (const line of lines) write(await readReleaseBytes(JSON.parse(line)));
};

await run();
