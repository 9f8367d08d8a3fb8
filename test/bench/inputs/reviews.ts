import { readFileSync } from "node:fs";
import { parse } from "yaml";
import type { ReviewHttpRequest } from "#lib/core/endpoint.ts";

// Builds the reviews for measurements as an API server would send them. Larger Pods have more containers, and the
// largest also have structured data.

const templates = parse(readFileSync(new URL("reviews.yaml", import.meta.url), "utf8"));

/**
 * Returns the body of a review of a pod. Its size is `bytes`, plus or minus a few hundred. Containers fill up to
 * `longestPod`, which is as long as a real pod gets, and a made-up list `records` fills the rest.
 */
export const buildPodReview = (bytes: number): string => {
  const review = structuredClone(templates.review);
  const { containers, records }: { containers: object[]; records: object[] } = review.request.object.spec;
  const getLength = () => JSON.stringify(review).length;

  while (containers.length < 2 || getLength() < Math.min(bytes, longestPod))
    containers.push(buildContainer(containers.length));
  const recordLength = JSON.stringify(buildRecord(0)).length;
  for (let missing = Math.floor((bytes - getLength()) / recordLength); missing > 0; missing--)
    records.push(buildRecord(missing));
  return JSON.stringify(review);
};

/** Up to this number of bytes, a larger review has more containers. A still larger review also has other data. */
const longestPod = 100_000;

const buildContainer = (index: number): object =>
  JSON.parse(
    JSON.stringify(templates.container)
      .replaceAll("INDEX", String(index))
      .replace('"PORT"', String(8080 + index)),
  );

const buildRecord = (index: number): object => {
  const labels = { ...templates.record.labels, [`shard-${index % 64}`]: "yes" };
  return { ...templates.record, id: `record-${index}`, weight: index / 8, enabled: index % 2 === 0, labels };
};

/** Returns a function that builds an API server's HTTP request. Each call builds a new one. */
export const createHttpRequestBuilder = (path: string, body: string) => (): ReviewHttpRequest => ({
  method: "POST",
  path,
  contentType: "application/json",
  readBody: () => body,
  deadline: Date.now() + 10_000,
});

/** Returns an event of an HTTP API in the payload format 2.0, as Lambda passes it to a function. */
export const buildHttpApiEvent = (path: string, body: string) => {
  const event = structuredClone(templates.event);
  event.headers["content-length"] = String(body.length);
  event.requestContext.http.path = path;
  return { ...event, rawPath: path, body };
};
