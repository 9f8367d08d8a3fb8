import { findFreePort, startProgram, waitForAnswer } from "../control-plane/process.ts";
import { findMoto } from "./tools.ts";

/** A running moto server. */
export interface Moto {
  url: string;
  /** Deletes everything in the server. */
  reset(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts moto on a free port. All access keys belong to one account. */
export const launchMoto = async (accountId = "123456789012"): Promise<Moto> => {
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const tool = findMoto();
  if ("missing" in tool) throw new Error(tool.missing);
  const [command = "", ...words] = tool.command;
  const server = startProgram(command, [...words, "-H", "127.0.0.1", "-p", `${port}`], { MOTO_ACCOUNT_ID: accountId });
  await waitForAnswer(`${url}/moto-api/`, server);
  const reset = async () => void (await fetch(`${url}/moto-api/reset`, { method: "POST" }));
  return { url, reset, stop: server.stop };
};

/** Starts moto, and points this process's environment variables at it. */
export const startMoto = async (...variables: `AWS_ENDPOINT_URL_${string}`[]): Promise<Moto> => {
  const moto = await launchMoto();
  const identity = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_SESSION_TOKEN: "c" };
  Object.assign(process.env, identity, Object.fromEntries(variables.map((name) => [name, moto.url])));
  return moto;
};

/** Access to moto's S3 for the stand-ins. */
export interface Storage {
  /** Returns an object's content, or undefined if the object doesn't exist. */
  read(bucket: string, key: string): Promise<Buffer | undefined>;
  /** Creates a bucket; returns the error's text if that fails. */
  createBucket(bucket: string): Promise<string | undefined>;
  /** Deletes a bucket; returns the error's text if that fails. */
  deleteBucket(bucket: string): Promise<string | undefined>;
}

export const openStorage = (moto: string, region: string): Storage => {
  const send = async (method: string, path: string, body?: string) => {
    const authorization = `AWS4-HMAC-SHA256 Credential=account/20260101/${region}/s3/aws4_request, SignedHeaders=host, Signature=0`;
    const response = await fetch(`${moto}/${path}`, { method, headers: { authorization }, body: body ?? null });
    return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) };
  };
  const describeProblem = ({ status, bytes }: { status: number; bytes: Buffer }) =>
    status < 300 ? undefined : String(bytes);
  return {
    read: async (bucket, key) => {
      const { status, bytes } = await send("GET", `${bucket}/${key.split("/").map(encodeURIComponent).join("/")}`);
      return status === 200 ? bytes : undefined;
    },
    createBucket: async (bucket) => {
      const constraint = `<LocationConstraint>${region}</LocationConstraint>`;
      const body = `<CreateBucketConfiguration>${constraint}</CreateBucketConfiguration>`;
      return describeProblem(await send("PUT", bucket, region === "us-east-1" ? undefined : body));
    },
    deleteBucket: async (bucket) => {
      const answer = await send("DELETE", bucket);
      return answer.status === 404 ? undefined : describeProblem(answer);
    },
  };
};
