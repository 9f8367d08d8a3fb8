import { Readable } from "node:stream";
import { getAwsDomain } from "#lib/cluster/credentials.ts";
import { maximumHttpsAnswerBytes } from "#lib/cluster/https-request.ts";
import { toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";

/** Any client of the AWS SDK. The types of middleware differ by service, so they are unknown here. */
export interface AwsClient {
  middlewareStack: { add(middleware: unknown, options: unknown): void };
}
export type SendToAws = (request: unknown) => Promise<unknown>;
interface CallContext {
  clientName?: string;
  commandName?: string;
}

/** For how many seconds a connection may be silent before the headers of an answer, and how long its body may take. */
const answerSeconds = 30;

/** The settings that differ between clients. Limits of time and size, for each attempt of a call, are equal for all. */
interface AwsClientSettings {
  maxAttempts: number;
  retryMode?: "adaptive";
  region?: string | undefined;
}

/** Opens a client of the AWS SDK. Its calls fail if an answer is late, too large or not from AWS. */
export const openAwsClient = <T extends AwsClient>(
  Client: new (settings: Omit<AwsClientSettings, "region"> & { region?: string; requestHandler: object }) => T,
  { region, ...settings }: AwsClientSettings,
): T => {
  requireEndpointUrls();
  const requestHandler = { connectionTimeout: answerSeconds * 1000, socketTimeout: answerSeconds * 1000 };
  const client = new Client({ ...settings, ...(region && { region }), requestHandler });
  client.middlewareStack.add(explainErrors, { step: "deserialize", priority: "high", name: "postern-errors" });
  client.middlewareStack.add(checkAnswers, { step: "deserialize", priority: "low", name: "postern-answers" });
  return client;
};

/** Throws if a variable with the address of AWS, such as AWS_ENDPOINT_URL, has no URL. */
const requireEndpointUrls = (): void => {
  for (const [name, value] of Object.entries(process.env))
    if (name.startsWith("AWS_ENDPOINT_URL") && value && !/^https?:$/.test(URL.parse(value)?.protocol ?? ""))
      throw new Complaint(`${name} is "${value}", which is no URL such as http://127.0.0.1:4566`);
};

/** Returns the URL of a service that is called without the SDK. The SDK uses the same variables. */
export const findServiceUrl = (service: "EKS" | "SNS" | "STS", region: string): URL => {
  requireEndpointUrls();
  const { [`AWS_ENDPOINT_URL_${service}`]: serviceUrl, AWS_ENDPOINT_URL } = process.env;
  return new URL(
    serviceUrl || AWS_ENDPOINT_URL || `https://${service.toLowerCase()}.${region}.${getAwsDomain(region)}`,
  );
};

/** Reads an answer before the SDK does. Throws if it is late, too large or not from AWS. */
const checkAnswers =
  (next: SendToAws, context: CallContext): SendToAws =>
  async (request) => {
    const { service, operation } = describeCall(context);
    // The SDK repeats a call that fails with a TimeoutError.
    const late = createError(`${service} doesn't answer ${operation} within ${answerSeconds} s`, "TimeoutError");
    const result = await next(request).catch((error) => {
      throw error.name === "TimeoutError" ? late : error;
    });
    const { response } = result as { response: { statusCode: number; headers: object; body: Readable } };
    const { statusCode: status, headers, body } = response;
    if (!isFromAws(status, headers)) {
      body.destroy();
      // The SDK repeats a call that fails with a status such as 503.
      const error = new Error(`the answer to ${operation} of ${service}, with the status ${status}, is not from AWS`);
      throw Object.assign(error, { $metadata: { httpStatusCode: status } });
    }
    const timer = setTimeout(() => body.destroy(late), answerSeconds * 1000);
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of body) {
        bytes += chunk.length;
        if (bytes > maximumHttpsAnswerBytes)
          throw createError(`${service} answers ${operation} with more than ${maximumHttpsAnswerBytes} bytes`);
        chunks.push(chunk);
      }
    } finally {
      clearTimeout(timer);
    }
    // The SDK takes the content of an S3 object only as a stream.
    response.body = Readable.from(Buffer.concat(chunks));
    return result;
  };

/** Creates an error as the SDK does. A Complaint would say that AWS has refused the call. */
const createError = (message: string, name = "Error") => Object.assign(new Error(message), { name, $metadata: {} });

/**
 * Reports whether an answer is from AWS. AWS sends each result with a header such as x-amzn-requestid. An error counts
 * as one of AWS even without such a header, unless it is HTML, as the pages of proxies are.
 */
export const isFromAws = (status: number, headers: object): boolean =>
  Object.keys(headers).some((name) => name.startsWith("x-amz")) ||
  (status >= 300 && !/html/.test(String(toMap(headers)["content-type"])));

/** Names service, operation and status in an error about an answer that the SDK can't read. */
const explainErrors =
  (next: SendToAws, context: CallContext): SendToAws =>
  (request) =>
    next(request).catch((error) => {
      const status = toMap(toMap(error).$response).statusCode;
      const { service, operation } = describeCall(context);
      if (status !== undefined && (!("$fault" in error) || /^Unknown/.test(error.message)))
        error.message = `${service} answers ${operation} with the status ${status} and a text that can't be read`;
      throw error;
    });

const describeCall = ({ clientName = "", commandName = "" }: CallContext) => ({
  service: clientName.replace(/Client$/, ""),
  operation: commandName.replace(/Command$/, ""),
});
