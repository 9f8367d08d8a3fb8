import { SSM } from "@aws-sdk/client-ssm";
import { unless } from "./errors.ts";

/** What a stage keeps in SSM: small texts, some of them secret. */
export interface Parameters {
  read(name: string): Promise<string | undefined>;
  /** Whether it is ours: false where there is one by that name already. */
  create(name: string, value: string): Promise<boolean>;
  write(name: string, value: string): Promise<void>;
  remove(name: string): Promise<void>;
}

/** Each is encrypted: what is no secret today may be one tomorrow. */
export const openParameters = (stage: string, client = new SSM({ maxAttempts: 5 })): Parameters => {
  const nameOf = (name: string) => `/postern/${stage}/${name}`;
  const put = (name: string, Value: string, Overwrite: boolean) =>
    client.putParameter({ Name: nameOf(name), Value, Type: "SecureString", Overwrite });
  return {
    read: (name) =>
      client
        .getParameter({ Name: nameOf(name), WithDecryption: true })
        .then(({ Parameter }) => Parameter?.Value)
        .catch(unless("ParameterNotFound", undefined)),
    create: (name, value) =>
      put(name, value, false)
        .then(() => true)
        .catch(unless("ParameterAlreadyExists", false)),
    write: async (name, value) => void (await put(name, value, true)),
    remove: async (name) =>
      void (await client.deleteParameter({ Name: nameOf(name) }).catch(unless("ParameterNotFound", undefined))),
  };
};
