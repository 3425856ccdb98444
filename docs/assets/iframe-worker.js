// Browsers do not start workers from file://. On such a page, run the script of a worker in a hidden frame, so that the search works.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.ready = false;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      // The worker's script calls postMessage(data), and listens for messages on its global object.
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const inside = this.inner.document;
      this.inner.importScripts = (...urls) => urls.forEach((one) => {
        const script = inside.createElement("script");
        script.src = one;
        script.async = false;
        inside.body.appendChild(script);
      });
      const script = inside.createElement("script");
      script.src = url;
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.body.appendChild(script);
    }

    postMessage(data) {
      if (this.ready) {
        this.inner.dispatchEvent(new MessageEvent("message", { data }));
      } else {
        this.waiting.push(data);
      }
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
