// A client on the Java library that counts the messages of the server in examples/lap. README.md says how to build it.
import ch.dragondreams.denetwork.Connection;
import ch.dragondreams.denetwork.message.Message;
import ch.dragondreams.denetwork.state.State;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.logging.Level;
import java.util.logging.Logger;

public class Lap extends Connection {
	static long next, got, stale, doubled, missed;
	static int connections;
	static volatile boolean end, again;

	@Override public void connectionEstablished() { connections++; }
	@Override public void connectionFailed(ConnectionFailedReason reason) { end = true; }
	@Override public void connectionClosed() {
		again = true;
		System.out.println("closed after " + got + " messages");
	}
	@Override public State createState(Message m, boolean readOnly) { return null; }
	@Override public void messageReceived(Message m) {
		if (m.getLength() != 8) return;
		long n = ByteBuffer.wrap(m.getData()).order(ByteOrder.LITTLE_ENDIAN).getLong(0);
		got++;
		if (n == next) {
			next++;
		} else if (n > next) {
			missed += n - next;
			next = n + 1;
		} else if (next - n > 30000) {
			stale++;
		} else {
			doubled++;
		}
	}

	public static void main(String[] args) throws Exception {
		Logger.getLogger("").setLevel(Level.WARNING);
		Lap c = new Lap();
		c.connectTo(args[0]);
		while (!end) {
			Thread.sleep(5);
			if (again) {
				again = false;
				c.connectTo(args[0]);
			}
		}
		System.out.printf("%d messages over %d connections: %d stale, %d missed, %d doubled%n", got, connections, stale, missed, doubled);
		System.exit(0);
	}
}
