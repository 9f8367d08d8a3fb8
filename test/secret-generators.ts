import fc from "fast-check";

const encode = (text: string) => Buffer.from(text).toString("base64");
const encodeDockerConfig = (auths: object) => encode(JSON.stringify({ auths }));

/** Generates a value that contains the secret in one of its usual forms. */
export const generateSecret = (planted: string) =>
  fc.constantFrom<unknown>(
    {
      kind: "Secret",
      data: { a: encode(planted), ".dockerconfigjson": encodeDockerConfig({ "a.b": { password: planted } }) },
    },
    { kind: "Secret", stringData: { a: planted, ".dockercfg": JSON.stringify({ "a.b": { auth: planted } }) } },
    { kind: "Secret", data: { ".dockerconfigjson": encode(`broken ${planted}`), deeper: { a: planted } } },
    { kind: "Secret", data: [planted] },
    { kind: "SecretList", items: [{ data: { a: encode(planted) } }] },
    { spec: { token: planted } },
    { status: { token: planted } },
    { headers: { authorization: `Bearer ${planted}`, "x-api-key": [planted], "Set-Cookie": planted } },
    { env: [{ name: "ACCESS_TOKEN", value: planted }] },
    `Bearer ${planted}`,
    `authorization: Basic ${planted}`,
    `eyJhbGciOiJub25lIn0.${planted}.x`,
    `-----BEGIN EC PRIVATE KEY-----\n${planted}\n-----END EC PRIVATE KEY-----`,
    `client-key-data: ${planted}`,
    `- name: a\n  password: >-\n    b\n    ${planted}\n`,
    `kind: Secret\nstringData:\n  a: ${planted}\n`,
    JSON.stringify({ body: { client_secret: planted, secret: planted } }),
    { httpHeaders: [{ name: "Cookie", value: planted }], env: [{ name: "DB_PASS", value: planted }] },
    { args: ["--db-password", planted, "--verbose"] },
    { password: { value: planted }, credentials: [{ value: planted }] },
    { template: { type: "Opaque", data: { a: encode(planted) } } },
    { binaryData: { a: encode(`users:\n- user:\n    token: a ${planted}\n`) } },
    `{"a":"Bearer ${planted}","a":1}`,
    `<server><password>${planted}</password></server>`,
    `sent ghp_${planted} there`,
    `https://a:${planted}@b.c/?token=${planted}&d=e`,
    {
      kind: "ConfigMap",
      data: { JWT_SECRET: planted, a: JSON.stringify({ auths: { b: { auth: encode(`c:${planted}`) } } }) },
    },
    `env:\n- name: DB_PASSWORD\n  value: ${planted}\nargs:\n- --token\n- ${planted}\n`,
    `SECRET_KEY_BASE=${planted}\n`,
    `secret = "${planted}"\npassword: &a ${planted}\n`,
    `a:${planted}@tcp(b:3306)/c`,
    { kind: "ExternalSecret", spec: { target: { template: { data: { a: planted } } } } },
  );

/** Generates values that contain the value `secret` deep in objects, lists and JSON texts. */
export const generateHolder = (secret: fc.Arbitrary<unknown>) =>
  fc
    .tuple(secret, fc.array(fc.constantFrom("in", "list", "text", "annotation"), { maxLength: 5 }))
    .map(([value, ways]) =>
      ways.reduce<unknown>((inner, way) => {
        if (way === "list") return [inner, "beside"];
        if (way === "text") return JSON.stringify({ inner });
        if (way === "annotation") return { metadata: { annotations: { a: JSON.stringify({ inner }), b: "c" } } };
        return { object: { in: inner } };
      }, value),
    );
