import type { AwsAction, AwsRequest, HttpsRequest } from "../needs.ts";
import { addressOf, ourIdentity } from "./credentials.ts";
import { signed } from "./signature.ts";

const versions = { ec2: "2016-11-15" };

export const queryOf = (action: AwsAction, { region, parameters }: AwsRequest): HttpsRequest => {
  const [service, name = ""] = action.split(":") as [keyof typeof versions, string];
  const { origin, host } = addressOf(service, region);
  const body = new URLSearchParams({ ...parameters, Action: name, Version: versions[service] }).toString();
  const headers = { "content-type": "application/x-www-form-urlencoded; charset=utf-8" };
  const request = { method: "POST" as const, host, path: "/", service, region, headers, body };
  return {
    url: `${origin}/`,
    method: "POST",
    headers: signed(request, ourIdentity(), new Date()),
    body,
    tries: 3,
    pause: 100,
  };
};
